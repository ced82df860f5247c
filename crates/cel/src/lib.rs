//! A parser and type checker for the Common Expression Language, with the messages and places of errors that cel-go has.
//!
//! An [`Environment`] is made of libraries, variables and types; it compiles the text of an expression to a checked tree or
//! to [`Issues`]. Functions are declared as data, one line per overload, see [`libraries`]. [`kubernetes`] has the
//! environment in which Kubernetes checks the expressions of admission policies, with types from OpenAPI v3 documents.
//!
//! Expressions are not evaluated.
//!
//! ```
//! use keleustes_cel::{Environment, Source, Type, libraries};
//!
//! let mut environment = Environment::default();
//! environment.add_library(&libraries::STANDARD);
//! environment.add_variable("replicas", Type::Int);
//! let source = Source::new("replicas > '1'");
//! let issues = environment.compile(&source).unwrap_err();
//! assert_eq!(
//!     issues.display(&source),
//!     "ERROR: <input>:1:10: found no matching overload for '_>_' applied to '(int, string)'
//!  | replicas > '1'
//!  | .........^"
//! );
//! ```

pub mod ast;
mod checker;
mod environment;
mod format_strings;
mod issues;
pub mod kubernetes;
mod lexer;
pub mod libraries;
pub mod macros;
mod parser;
mod regexp;
mod source;
mod stack;
mod times;
mod types;
mod unescape;
mod unify;
mod validators;
mod well_known;

pub use checker::Checked;
pub use environment::{DeclarationError, Environment, Fields, Overload, StructTypes};
pub use issues::{Issue, Issues};
pub use parser::parse;
pub use source::{Location, Source};
pub use types::Type;
