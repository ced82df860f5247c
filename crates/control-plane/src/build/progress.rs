//! Keeps a person informed during the long first build.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Program;

/// How often a line is written where lines cannot be overwritten, such as the log of a test run.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Which program is being built, the how manyth it is, and for how long it has been going on.
pub(super) struct Progress {
    total: usize,
    done: usize,
    current: &'static str,
    began: Instant,
    current_began: Instant,
    last_line: Instant,
    /// Whether the cursor stands behind a line that will be overwritten.
    line_is_open: bool,
    overwrite: bool,
}

impl Progress {
    /// Says what is going to happen.
    pub(super) fn begin(programs: &[Program], into: &Path) -> Self {
        let now = Instant::now();
        eprintln!(
            "building {} from published Go modules into {}; this happens once and can take ten minutes or more",
            super::names(programs),
            into.display()
        );
        Self {
            total: programs.len(),
            done: 0,
            current: "",
            began: now,
            current_began: now,
            last_line: now,
            line_is_open: false,
            overwrite: std::io::stderr().is_terminal(),
        }
    }

    /// Says that the next program has its turn.
    pub(super) fn next(&mut self, program: Program) {
        self.close_line();
        self.done += 1;
        self.current = program.name();
        self.current_began = Instant::now();
        self.say();
    }

    /// Says that it is still going on, if it is time to say so.
    pub(super) fn tick(&mut self) {
        if self.overwrite || self.last_line.elapsed() >= LINE_EVERY {
            self.say();
        }
    }

    /// Says that all is done.
    pub(super) fn end(mut self) {
        self.close_line();
        eprintln!("built {} programs in {} s", self.total, self.began.elapsed().as_secs());
    }

    fn say(&mut self) {
        self.last_line = Instant::now();
        let line = line(self.done, self.total, self.current, self.current_began.elapsed());
        if self.overwrite {
            eprint!("\r{line}");
            let _ = std::io::stderr().flush();
            self.line_is_open = true;
        } else {
            eprintln!("{line}");
        }
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.line_is_open) {
            eprintln!();
        }
    }
}

/// A build that fails is followed by its error, on a line of its own.
impl Drop for Progress {
    fn drop(&mut self) {
        self.close_line();
    }
}

fn line(done: usize, total: usize, program: &str, elapsed: Duration) -> String {
    format!("[{done}/{total}] building {program} ({} s)", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_program_position_and_time() {
        assert_eq!(
            line(2, 6, "kube-apiserver", Duration::from_millis(73_400)),
            "[2/6] building kube-apiserver (73 s)"
        );
    }
}
