//! A child process that never outlives the program that started it, not even when that program is killed.
//!
//! Unix offers `PR_SET_PDEATHSIG` for this, but it follows the *thread* that forked: a child started by one test thread
//! would die with that thread, and it exists on Linux alone. So each child is started by a short shell script instead,
//! which leaves a watcher behind and then *becomes* the program:
//!
//! - The watcher blocks on a pipe whose other end only this program holds. When this program ends in any way, the
//!   kernel closes the pipe and the watcher kills the process group.
//! - The shell replaces itself, so the process id is that of the real program: a signal sent to it by anyone hits the
//!   program, and its exit status reaches us directly.
//! - Program and watcher form a process group of their own. Ctrl-C in a terminal therefore reaches only us and we stop
//!   everything in order. As long as the watcher lives the number of the group cannot be given to another process, so
//!   the watcher can never kill an unrelated process.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::error::{During, Error, Result};

/// How long [`Process`] waits after SIGTERM before it sends SIGKILL when dropped.
const GRACE_ON_DROP: Duration = Duration::from_secs(3);

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(10);

/// How much of a log is shown when something goes wrong.
const TAIL_BYTES: usize = 4096;

/// `$$` is the shell's own id even inside the watcher, and stays right after `exec`, because the program keeps it.
const BECOME_PROGRAM_AND_LEAVE_WATCHER: &str = "exec 3<&0 </dev/null\n\
     { while read -r _; do :; done <&3; kill -s KILL -- -$$; } >/dev/null 2>&1 &\n\
     exec 3<&-\n\
     exec \"$@\"";

/// A running program, its log, and the promise that it ends with us.
///
/// Dropping it sends SIGTERM, and SIGKILL if that does not help within three seconds.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with its output appended to the file `log`.
    ///
    /// Program, arguments, environment variables and working directory are taken from `command`; its standard streams
    /// and a cleared environment are not.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self> {
        let program = executable(Path::new(command.get_program()))
            .during(|| format!("starting {name} ({})", command.get_program().display()))?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(BECOME_PROGRAM_AND_LEAVE_WATCHER).arg(name).arg(program).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            shell.current_dir(dir);
        }
        let out = append_to(log)?;
        let err = out.try_clone().during(|| format!("opening {} twice", log.display()))?;
        let child = shell
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .during(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), ended: None })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of the program itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that receives the program's output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log, for error messages.
    pub fn log_tail(&self) -> String {
        tail_of(&self.log)
    }

    /// How the program ended, or `None` while it runs (or is paused).
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some(status);
            self.end_watcher();
        }
        self.ended
    }

    /// Whether the program is there (running or paused).
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Asks the program to end (SIGTERM) and returns at once.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends the program without giving it a chance to react (SIGKILL), and returns when it is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait_exit(Duration::from_secs(10)).map(drop)
    }

    /// Freezes the program (SIGSTOP).
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen program go on (SIGCONT).
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until the program has ended by itself or by an earlier signal.
    pub fn wait_exit(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.exit_status() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(Error::StillRunning {
                    program: self.name.clone(),
                    pid: self.pid(),
                    seconds: timeout.as_secs(),
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Ends the program in an orderly way: SIGTERM, then SIGKILL when `grace` is over.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        if self.is_running() {
            self.terminate()?;
            // A paused program cannot react to SIGTERM.
            self.resume()?;
        }
        match self.wait_exit(grace) {
            Err(Error::StillRunning { .. }) => {
                self.kill9()?;
                self.wait_exit(Duration::ZERO)
            }
            ended => ended,
        }
    }

    /// The error that says this program ended while it was needed, if it did.
    pub(crate) fn ended_early(&mut self) -> Option<Error> {
        let status = self.exit_status()?;
        Some(Error::Exited { program: self.name.clone(), status: status.to_string(), tail: self.log_tail() })
    }

    /// Sends a signal to the program; one that has ended already is left alone.
    fn signal(&mut self, signal: Signal) -> Result<()> {
        // Until we have reaped the child its id cannot belong to anybody else.
        if self.exit_status().is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(std::io::Error::from)
            .during(|| format!("sending {signal:?} to {} (pid {})", self.name, self.pid()))
    }

    /// Ends the watcher, and with it whatever children the program left behind in its group.
    fn end_watcher(&self) {
        // "No such process" means that the group is empty already, which is what we want.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.stop(GRACE_ON_DROP).is_err() {
            self.end_watcher();
        }
    }
}

/// Finds the program as `execvp` would, so that a missing one is an error here and not a line in a log.
fn executable(program: &Path) -> std::io::Result<PathBuf> {
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let found = if program.components().count() > 1 {
        Some(program.to_owned()).filter(|path| runs(path))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| runs(path))
    };
    found.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "no such program"))
}

fn append_to(log: &Path) -> Result<File> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).during(|| format!("creating {}", dir.display()))?;
    }
    OpenOptions::new().create(true).append(true).open(log).during(|| format!("opening {}", log.display()))
}

/// The last lines of a file, or why they cannot be had.
pub(crate) fn tail_of(path: &Path) -> String {
    match fs::read(path) {
        Err(err) => format!("({}: {err})", path.display()),
        Ok(bytes) => {
            let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
            match tail.split_once('\n') {
                // The first line is most likely cut in the middle.
                Some((_, whole_lines)) if bytes.len() > TAIL_BYTES => whole_lines.to_owned(),
                _ => tail,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper(dir: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::spawn("sleeper", &command, &dir.join("sleeper.log")).unwrap()
    }

    /// All members of a process group that are not zombies, as the kernel lists them.
    fn members_of_group(group: u32) -> Vec<String> {
        let listed = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            let (name, fields) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = fields.split_whitespace().collect();
            (fields[2] == group.to_string() && fields[0] != "Z").then(|| name.to_owned())
        });
        listed.collect()
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn the_process_id_is_that_of_the_program_itself() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path());
        let comm = PathBuf::from(format!("/proc/{}/comm", process.pid()));
        wait_until("the shell becomes the program", || {
            fs::read_to_string(&comm).is_ok_and(|comm| comm.trim() == "sleep")
        });
    }

    #[test]
    fn nothing_is_left_when_our_end_of_the_pipe_closes() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path());
        let group = process.pid();
        wait_until("program and watcher run", || members_of_group(group).len() == 2);

        // This is what the kernel does for a parent that was killed.
        drop(process.child.stdin.take());

        let status = process.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
        wait_until("the group is empty", || members_of_group(group).is_empty());
    }

    #[test]
    fn nothing_is_left_after_a_drop_even_of_a_paused_program() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path());
        let group = process.pid();
        process.pause().unwrap();
        drop(process);
        wait_until("the group is empty", || members_of_group(group).is_empty());
    }

    #[test]
    fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"]);
        let mut process = Process::spawn("deaf", &command, &dir.path().join("deaf.log")).unwrap();
        wait_until("the trap is set", || process.log_tail().contains("deaf"));
        let status = process.stop(Duration::from_millis(200)).unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn the_exit_status_and_the_output_of_the_program_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo $WORD >&2; exit 7"]).env("WORD", "err");
        let mut process = Process::spawn("brief", &command, &dir.path().join("brief.log")).unwrap();
        assert_eq!(process.wait_exit(Duration::from_secs(10)).unwrap().code(), Some(7));
        assert_eq!(process.log_tail(), "out\nerr\n");
        let error = process.ended_early().unwrap().to_string();
        assert!(error.contains("brief ended (exit status: 7)") && error.contains("err"), "{error}");
    }

    #[test]
    fn a_missing_program_is_an_error_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        for program in ["no-such-program-anywhere", "/no/such/program"] {
            let error = Process::spawn("ghost", &Command::new(program), &dir.path().join("log")).unwrap_err();
            assert!(error.to_string().contains("starting ghost"), "{error}");
        }
    }

    #[test]
    fn the_tail_of_a_long_log_starts_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long.log");
        fs::write(&path, "0123456789 line\n".repeat(1000)).unwrap();
        let tail = tail_of(&path);
        assert!(tail.len() <= TAIL_BYTES && tail.starts_with("0123456789 line\n"), "{tail}");
    }
}
