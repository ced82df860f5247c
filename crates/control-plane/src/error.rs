//! What can go wrong while a control plane is built or run, named by what the caller does next.

use std::io;
use std::path::PathBuf;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, with enough of the failing program's output to act on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Install Go, or provide the programs.
    #[error(
        "Go is needed once to build the real control plane ({wanted}), but `go` was not found in PATH.\n\
         Install Go {needed} or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that holds {wanted}."
    )]
    GoMissing {
        /// The oldest version that serves.
        needed: String,
        /// The programs that were to be built.
        wanted: String,
    },
    /// Update Go, or provide the programs.
    #[error(
        "Go {needed} or newer is needed once to build the real control plane ({wanted}), but this is what was found: {found}.\n\
         Install Go {needed} or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that holds {wanted}."
    )]
    GoTooOld {
        /// The oldest version that serves.
        needed: String,
        /// The version of the installed Go.
        found: String,
        /// The programs that were to be built.
        wanted: String,
    },
    /// Complete the directory or unset the variable.
    #[error(
        "KUBEBUILDER_ASSETS is {dir:?}, but there is no {program} in it.\n\
         Complete that directory, or unset KUBEBUILDER_ASSETS to have the control plane built from its published Go modules."
    )]
    AssetMissing {
        /// The directory named by the variable.
        dir: PathBuf,
        /// The program looked for.
        program: String,
    },
    /// Read what the Go compiler said; a proxy or a full disk is the usual cause.
    #[error("building {program} failed:\n{tail}")]
    Build {
        /// The program that was being built.
        program: String,
        /// The end of the compiler's output.
        tail: String,
    },
    /// Read the log: the program ended while it was needed.
    #[error("{program} ended ({status}); the end of its log:\n{tail}")]
    Exited {
        /// The program that ended.
        program: String,
        /// How it ended.
        status: String,
        /// The end of its log.
        tail: String,
    },
    /// Read the log: the program runs but did not get ready in time.
    #[error("{program} was not ready after {seconds} s ({last}); the end of its log:\n{tail}")]
    NotReady {
        /// The program waited for.
        program: String,
        /// How long it was waited for.
        seconds: u64,
        /// The last answer to the question whether it is ready.
        last: String,
        /// The end of its log.
        tail: String,
    },
    /// The program still runs although it was stopped.
    #[error("{program} (pid {pid}) did not end within {seconds} s")]
    StillRunning {
        /// The program waited for.
        program: String,
        /// Its process id.
        pid: u32,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A command that was to set something up was refused.
    #[error("{what} failed: {said}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The message of the other side.
        said: String,
    },
    /// The operating system refused; this program cannot fix it.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A key or certificate could not be made.
    #[error("making {what}: {source}")]
    Certificate {
        /// The certificate or key that was wanted.
        what: String,
        /// Why it failed.
        source: rcgen::Error,
    },
}

/// Adds what was attempted to an error of the operating system.
pub(crate) trait During<T> {
    /// Wraps the failure together with `what`, which is only rendered when needed.
    fn during<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|source| Error::Io { what: what().into(), source })
    }
}

impl<T> During<T> for std::result::Result<T, rcgen::Error> {
    fn during<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|source| Error::Certificate { what: what().into(), source })
    }
}
