//! Files that may be replaced while the process runs.
//!
//! Before each use they are read and compared with what is loaded. There is no watch that can break and no interval: the
//! files are a few kilobytes, and what they are used for takes longer than reading them. The original watches them with
//! file notifications and re-reads both at each.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keleustes_objects::SecretBytes;
use parking_lot::Mutex;

/// The longest file that is loaded.
const MAX_BYTES: u64 = 1 << 20;

/// Parses the contents of the files, in the order of their paths.
pub type ParseFiles<T> = Box<dyn Fn(&[SecretBytes]) -> Result<T, String> + Send + Sync>;

/// The value that is parsed from one or more files. A new version replaces the old one only if it parses; a version that
/// does not parse, such as half of a replaced pair, is logged once and ignored.
pub struct ReloadedFiles<T> {
    paths: Vec<PathBuf>,
    parse: ParseFiles<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    contents: Vec<SecretBytes>,
    /// The last refused version, so that it is logged once.
    refused: Option<Vec<SecretBytes>>,
    /// The last error of reading, so that it is logged once.
    unreadable: Option<String>,
}

impl<T> ReloadedFiles<T> {
    /// Loads the files.
    ///
    /// # Errors
    /// If one of them cannot be read, or they do not parse.
    pub fn load(paths: Vec<PathBuf>, parse: ParseFiles<T>) -> Result<Self, String> {
        let contents = read_all(&paths)?;
        let value = Arc::new(parse(&contents)?);
        let state = State { value, contents, refused: None, unreadable: None };
        Ok(Self { paths, parse, state: Mutex::new(state) })
    }

    /// The value of the files as they are now, or of the last version that parsed. It reads files, so it must not be
    /// called on a thread that serves other tasks.
    pub fn current(&self) -> Arc<T> {
        let mut state = self.state.lock();
        match read_all(&self.paths) {
            Err(error) => {
                if state.unreadable.as_ref() != Some(&error) {
                    tracing::error!(files = ?self.paths, error, "cannot read files, keeping what is loaded");
                    state.unreadable = Some(error);
                }
            }
            Ok(contents) => {
                state.unreadable = None;
                if contents == state.contents {
                    state.refused = None;
                } else if state.refused.as_ref() != Some(&contents) {
                    self.replace(&mut state, contents);
                }
            }
        }
        state.value.clone()
    }

    fn replace(&self, state: &mut State<T>, contents: Vec<SecretBytes>) {
        match (self.parse)(&contents) {
            Ok(value) => {
                tracing::info!(files = ?self.paths, "Loaded changed files");
                *state = State { value: Arc::new(value), contents, refused: None, unreadable: None };
            }
            Err(error) => {
                tracing::error!(files = ?self.paths, error, "cannot use changed files, keeping what is loaded");
                state.refused = Some(contents);
            }
        }
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<SecretBytes>, String> {
    paths.iter().map(|path| read(path)).collect()
}

/// The content of a file. The buffer is as large as the file, so that no copies of a key remain in freed memory.
fn read(path: &Path) -> Result<SecretBytes, String> {
    // Go's text of the same error.
    let cannot = |error: &std::io::Error| {
        let cause = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        format!("open {}: {cause}", path.display())
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let length = file.metadata().map_err(|error| cannot(&error))?.len();
    if length > MAX_BYTES {
        return Err(format!("{} is larger than 1 MiB", path.display()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    Ok(bytes.into())
}

/// Warns if a file with a private key can be read or written by other users of the host.
pub fn warn_of_loose_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
    if let Ok(mode) = mode
        && mode & 0o077 != 0
    {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "private key file is accessible to other users, mode 0600 is recommended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(paths: Vec<PathBuf>) -> Result<ReloadedFiles<String>, String> {
        let parse = |contents: &[SecretBytes]| {
            let texts: Vec<_> =
                contents.iter().map(|bytes| String::from_utf8_lossy(bytes.expose())).collect();
            if texts.iter().all(|text| *text == texts[0]) && !texts[0].is_empty() {
                Ok(texts[0].to_string())
            } else {
                Err(format!("{texts:?} differ"))
            }
        };
        ReloadedFiles::load(paths, Box::new(parse))
    }

    /// Proves CSRS-11, CSRS-77, CSRS-91, CSRS-115.
    #[test]
    fn new_version_counts_only_once_it_parses() {
        let directory = std::env::temp_dir().join(format!("keleustes-reload-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (one, other) = (directory.join("one"), directory.join("other"));
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        write(&one, "1");
        assert!(
            loaded(vec![one.clone(), other.clone()])
                .is_err_and(|error| error.ends_with("no such file or directory"))
        );
        write(&other, "2");
        assert!(loaded(vec![one.clone(), other.clone()]).is_err());
        write(&other, "1");
        let files = loaded(vec![one.clone(), other.clone()]).unwrap();
        assert_eq!(*files.current(), "1");
        write(&one, "2");
        assert_eq!(*files.current(), "1", "half replaced");
        std::fs::remove_file(&other).unwrap();
        assert_eq!(*files.current(), "1", "removed");
        write(&other, "");
        assert_eq!(*files.current(), "1", "truncated");
        write(&other, "2");
        assert_eq!(*files.current(), "2");
        let renamed = directory.join("new");
        write(&renamed, "3");
        std::fs::rename(&renamed, &one).unwrap();
        assert_eq!(*files.current(), "2");
        write(&renamed, "3");
        std::fs::rename(&renamed, &other).unwrap();
        assert_eq!(*files.current(), "3", "files that were replaced by a rename");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
