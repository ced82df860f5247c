//! Nothing here needs Go or a network: Go is played by small scripts.

use super::*;

fn workshop(cache: &Path, assets: Option<&Path>, go: &Path) -> BinaryCache {
    BinaryCache { cache: cache.to_owned(), assets: assets.map(Path::to_owned), go: go.to_owned() }
}

/// The file is written by another process: were it open for writing here while some other test forks, executing it
/// could fail with "text file busy".
fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("go");
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let status = Command::new("sh").args(["-c", write, "write", text]).arg(&path).status().unwrap();
    assert!(status.success());
    path
}

/// Answers like Go: a version, the place of a module, and a "program" that says how it was built.
const FAKE_GO: &str = r#"
case "$1" in
env) echo go1.26.8 ;;
mod) echo '{"Dir": "'"$(dirname "$0")"'/module"}' ;;
build)
  while [ "$1" != "-o" ]; do shift; done
  [ "$3" = "$(cat "$(dirname "$0")/fails")" ] && { echo "cannot compile" >&2; exit 1; }
  echo "$3 $GOFLAGS CGO=$CGO_ENABLED" > "$2"
  echo built "$3" >> "$(dirname "$0")/calls" ;;
esac"#;

fn with_fake_go() -> (tempfile::TempDir, BinaryCache) {
    let dir = tempfile::tempdir().unwrap();
    let go = script(dir.path(), FAKE_GO);
    fs::write(dir.path().join("fails"), "nothing").unwrap();
    for (folder, file) in
        [("node/fast", "b.yaml"), ("node/heartbeat-with-lease", "c.yaml"), ("pod/fast", "d.yaml")]
    {
        let folder = dir.path().join("module/kustomize/stage").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), format!("name: {file}\n")).unwrap();
        fs::write(folder.join("kustomization.yaml"), "resources: []\n").unwrap();
    }
    let workshop = workshop(&dir.path().join("cache"), None, &go);
    (dir, workshop)
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let cache_with = |vars: &[(&str, &str)]| {
        let vars: BTreeMap<_, _> = vars.iter().copied().collect();
        BinaryCache::from_vars(|name| vars.get(name).map(PathBuf::from)).cache
    };
    let home = ("HOME", "/home/someone");
    let xdg = ("XDG_CACHE_HOME", "/xdg");
    assert_eq!(cache_with(&[home]), Path::new("/home/someone/.cache/keleustes"));
    assert_eq!(cache_with(&[home, xdg]), Path::new("/xdg/keleustes"));
    assert_eq!(cache_with(&[home, xdg, ("KELEUSTES_CACHE", "/mine")]), Path::new("/mine"));
}

#[test]
fn without_go_the_message_says_what_to_install_or_set() {
    let dir = tempfile::tempdir().unwrap();
    let workshop = workshop(dir.path(), None, Path::new("/nowhere/go"));
    let message = workshop.provide(&Program::BASE).unwrap_err().to_string();
    assert!(message.contains("Install Go 1.26 or newer"), "{message}");
    assert!(message.contains("or set KUBEBUILDER_ASSETS"), "{message}");
    assert!(message.contains("etcd, kube-apiserver, kubectl"), "{message}");
}

#[test]
fn an_old_go_is_refused_with_its_own_words() {
    for (script_text, shown) in
        [("echo go1.25.3", "go1.25.3"), ("echo 'go: no toolchain for 1.26.0' >&2; exit 1", "no toolchain")]
    {
        let dir = tempfile::tempdir().unwrap();
        let go = script(dir.path(), script_text);
        let error = workshop(dir.path(), None, &go).provide(&[Program::Etcd]).unwrap_err();
        assert!(matches!(error, Error::GoTooOld { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(shown) && message.contains("Install Go 1.26 or newer"), "{message}");
    }
}

#[test]
fn only_what_is_asked_for_is_built_and_only_once() {
    let (dir, workshop) = with_fake_go();
    let built = workshop.provide(&[Program::Etcd, Program::Kubectl]).unwrap();
    assert_eq!(built.path(Program::Etcd), Some(workshop.built_dir().join("etcd").as_path()));
    assert_eq!(built.path(Program::KubeApiserver), None);
    workshop.provide(&[Program::Etcd, Program::Kubectl, Program::KubeScheduler]).unwrap();
    let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
    let packages: Vec<&str> = calls.lines().collect();
    assert_eq!(
        packages,
        [
            "built go.etcd.io/etcd/server/v3",
            "built k8s.io/kubernetes/cmd/kubectl",
            "built k8s.io/kubernetes/cmd/kube-scheduler",
        ]
    );
}

#[test]
fn go_may_not_change_the_module_files_nor_use_c() {
    let (_dir, workshop) = with_fake_go();
    let built = workshop.provide(&[Program::Etcd]).unwrap();
    let said = fs::read_to_string(built.path(Program::Etcd).unwrap()).unwrap();
    assert!(said.contains("-mod=readonly") && said.contains("-trimpath") && said.contains("CGO=0"), "{said}");
}

#[test]
fn a_failed_build_shows_the_compiler_and_leaves_earlier_programs() {
    let (dir, workshop) = with_fake_go();
    fs::write(dir.path().join("fails"), "k8s.io/kubernetes/cmd/kube-apiserver").unwrap();
    let error = workshop.provide(&Program::BASE).unwrap_err().to_string();
    assert!(error.contains("building kube-apiserver failed") && error.contains("cannot compile"), "{error}");
    let shelf = workshop.cache.join("control-plane");
    let left: Vec<_> = fs::read_dir(shelf).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(LEFTOVER)), "{left:?}");
    assert!(workshop.built_dir().join("etcd").is_file());
    assert!(!workshop.built_dir().join("kube-apiserver").exists());
}

#[test]
fn what_an_interrupted_build_left_is_removed_by_the_next() {
    let (_dir, workshop) = with_fake_go();
    let leftover = workshop.cache.join("control-plane").join(format!("{LEFTOVER}x/y"));
    fs::create_dir_all(&leftover).unwrap();
    workshop.provide(&[Program::Etcd]).unwrap();
    assert!(!leftover.exists());
}

#[test]
fn kwok_comes_with_its_stages_in_one_file() {
    let (_dir, workshop) = with_fake_go();
    let built = workshop.provide(&[Program::Kwok]).unwrap();
    let stages = fs::read_to_string(built.kwok_stages()).unwrap();
    assert_eq!(stages, "---\nname: b.yaml\n---\nname: c.yaml\n---\nname: d.yaml\n");
}

#[test]
fn kubebuilder_assets_are_used_instead_of_a_build() {
    let dir = tempfile::tempdir().unwrap();
    let assets = dir.path().join("assets");
    fs::create_dir(&assets).unwrap();
    for program in Program::BASE {
        fs::write(assets.join(program.name()), "").unwrap();
    }
    let workshop = workshop(dir.path(), Some(&assets), Path::new("/nowhere/go"));
    let found = workshop.provide(&Program::BASE).unwrap();
    for program in Program::BASE {
        assert_eq!(found.path(program), Some(assets.join(program.name()).as_path()));
    }
}

#[test]
fn incomplete_kubebuilder_assets_are_an_error_that_names_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("etcd"), "").unwrap();
    let workshop = workshop(dir.path(), Some(dir.path()), Path::new("/nowhere/go"));
    let error = workshop.provide(&Program::BASE).unwrap_err();
    assert!(
        matches!(&error, Error::AssetMissing { program, .. } if program == "kube-apiserver"),
        "{error:?}"
    );
}

#[test]
fn what_published_assets_never_carry_is_built() {
    let (dir, workshop) = with_fake_go();
    let assets = dir.path().join("assets");
    fs::create_dir(&assets).unwrap();
    fs::write(assets.join("kube-controller-manager"), "").unwrap();
    let workshop = BinaryCache { assets: Some(assets.clone()), ..workshop };
    let found = workshop.provide(&[Program::KubeScheduler, Program::KubeControllerManager]).unwrap();
    assert_eq!(
        found.path(Program::KubeScheduler),
        Some(workshop.built_dir().join("kube-scheduler").as_path())
    );
    assert_eq!(
        found.path(Program::KubeControllerManager),
        Some(assets.join("kube-controller-manager").as_path())
    );
}

#[test]
fn kubernetes_programs_are_built_with_their_version() {
    let flags = Program::KubeApiserver.linker_flags();
    for flag in ["gitVersion=v1.37.1", "gitMajor=1", "gitMinor=37"] {
        assert!(flags.contains(&format!("-X k8s.io/component-base/version.{flag}")), "{flags}");
        assert!(flags.contains(&format!("-X k8s.io/client-go/pkg/version.{flag}")), "{flags}");
    }
    assert_eq!(Program::Etcd.linker_flags(), "-s -w");
}

#[test]
fn versions_of_go_are_compared_as_numbers() {
    assert!(minor_version("1.26.8\n") >= minor_version("1.26.0"));
    assert!(minor_version("1.27rc1") > minor_version("1.26"));
    assert!(minor_version("1.9.7") < minor_version("1.26.0"));
    assert_eq!(minor_version("weekly"), None);
}
