//! A bearer token from a file that is replaced while the manager runs.
//!
//! `kube` sends the file as it is: a newline at its end is no header value, so that every request fails, and a file that is
//! empty while it is rewritten makes requests anonymous.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use keleustes_objects::{ApiError, SecretBytes};
use kube::client::AuthError;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::layers::{Token, TokenSource};

/// How long a token is used before the file is read again. Parity: `NewCachedFileTokenSource` of client-go, a minute less
/// ten seconds.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(50);
/// The same after the file could not be used.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The token in a file, or the last one that was.
pub(super) struct TokenFile {
    path: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    token: Token,
    read_again_at: Instant,
}

impl TokenFile {
    /// Takes the token file from a user. It precedes a token that the kubeconfig states, as in client-go, which is used
    /// only if the file cannot be.
    pub(super) fn take_from(user: &mut AuthInfo) -> Result<Option<Self>, kube::Error> {
        let Some(path) = user.token_file.take() else { return Ok(None) };
        match Self::open(Path::new(&path)) {
            Ok(file) => {
                user.token = None;
                Ok(Some(file))
            }
            Err(error) if user.token.is_some() => {
                tracing::warn!(file = path, %error, "cannot use token file, using the token of the kubeconfig");
                Ok(None)
            }
            Err(error) => Err(kube::Error::Auth(error)),
        }
    }

    fn open(path: &Path) -> Result<Self, AuthError> {
        let current = Current { token: read(path)?, read_again_at: Instant::now() + READ_AGAIN_AFTER };
        Ok(Self { path: path.to_owned(), current: Mutex::new(current) })
    }

    fn current(&self) -> Token {
        let mut current = self.current.lock();
        let now = Instant::now();
        if now >= current.read_again_at {
            current.read_again_at = match read(&self.path) {
                Ok(token) => {
                    current.token = token;
                    now + READ_AGAIN_AFTER
                }
                Err(error) => {
                    tracing::error!(file = %self.path.display(), %error, "cannot use token file, keeping the last token");
                    now + RETRY_AFTER
                }
            };
        }
        current.token.clone()
    }
}

impl TokenSource for TokenFile {
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>> {
        Box::pin(std::future::ready(Ok(self.current())))
    }

    /// The file is read again in time anyway, and holds no other token before it is replaced.
    fn reject(&self, _: &Token) {}
}

fn read(path: &Path) -> Result<Token, AuthError> {
    let cannot = |cause: io::Error| AuthError::ReadTokenFile(cause, path.to_owned());
    let text = SecretBytes::from(std::fs::read(path).map_err(cannot)?);
    let token = std::str::from_utf8(text.expose()).unwrap_or_default().trim();
    let token = Some(token).filter(|token| !token.is_empty()).and_then(Token::new);
    token.ok_or_else(|| cannot(io::Error::new(io::ErrorKind::InvalidData, "it holds no token")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves RUN-4.
    #[tokio::test(start_paused = true)]
    async fn last_token_is_used_until_the_file_holds_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(TokenFile::open(&path).is_err());
        std::fs::write(&path, "first\r\n").unwrap();
        let file = TokenFile::open(&path).unwrap();
        let is = |text: &str| Some(file.current()) == Token::new(text);
        assert!(is("first"));
        // A file that is being rewritten, or is removed, or holds something else.
        for wrong in [Some(""), Some(" \n"), Some("a\nb"), None] {
            match wrong {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            tokio::time::advance(READ_AGAIN_AFTER).await;
            assert!(is("first"), "{wrong:?}");
        }
        std::fs::write(&path, "second\n").unwrap();
        assert!(is("first"), "the file is not read for each request");
        tokio::time::advance(RETRY_AFTER).await;
        assert!(is("second"));
        std::fs::write(&path, "third").unwrap();
        tokio::time::advance(READ_AGAIN_AFTER - RETRY_AFTER).await;
        assert!(is("second"));
        tokio::time::advance(RETRY_AFTER).await;
        assert!(is("third"));
    }
}
