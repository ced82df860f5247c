//! Libraries: declarations as data.
//!
//! A declaration is a line: `name(arguments) -> result` for a function, `receiver name(arguments) -> result` for a member
//! function, `type name` for a type without fields. Single capital letters are type parameters. The order of a function's
//! overloads matters: the first that fits gives the result type.

use crate::macros::{
    BIND, MacroDeclaration, OPTIONALS, SORT_BY, STANDARD as STANDARD_MACROS, TWO_VARIABLES as PAIRS,
};

/// Functions, types and macros that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// One declaration per line; lines that begin with `#` are comments.
    pub declarations: &'static str,
    /// The macros.
    pub macros: &'static [MacroDeclaration],
}

macro_rules! library {
    ($(#[$doc:meta])* $name:ident, $file:literal, $macros:expr) => {
        $(#[$doc])*
        pub const $name: Library =
            Library { declarations: include_str!(concat!("libraries/", $file, ".txt")), macros: $macros };
    };
}

library! {
    /// The language itself.
    STANDARD, "standard", STANDARD_MACROS
}
library! {
    /// Optional values: `a.?b`, `a[?b]`, `optional.of(a)`.
    OPTIONAL, "optional", OPTIONALS
}
library! {
    /// The string extensions of cel-go, version 2.
    STRINGS, "strings", &[]
}
library! {
    /// The set extensions of cel-go.
    SETS, "sets", &[]
}
library! {
    /// The list extensions of cel-go, version 3.
    LISTS, "lists", SORT_BY
}
library! {
    /// Comprehensions with two variables.
    TWO_VARIABLES, "two_variables", PAIRS
}
library! {
    /// Kubernetes: URLs.
    URLS, "urls", &[]
}
library! {
    /// Kubernetes: `find` and `findAll`.
    REGEX, "regex", &[]
}
library! {
    /// Kubernetes: authorization checks.
    AUTHZ, "authz", &[]
}
library! {
    /// Kubernetes: authorization checks with selectors.
    AUTHZ_SELECTORS, "authz_selectors", &[]
}
library! {
    /// Kubernetes: quantities.
    QUANTITY, "quantity", &[]
}
library! {
    /// Kubernetes: IP addresses.
    IP, "ip", &[]
}
library! {
    /// Kubernetes: CIDRs.
    CIDR, "cidr", &[]
}
library! {
    /// Kubernetes: named formats.
    FORMAT, "format", &[]
}
library! {
    /// Kubernetes: semantic versions, version 1.
    SEMVER, "semver", &[]
}
library! {
    /// Kubernetes: list functions, version 1.
    KUBERNETES_LISTS, "kubernetes_lists", &[]
}

/// `cel.bind()`, which Kubernetes does not have.
pub const BINDINGS: Library = Library { declarations: "", macros: BIND };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;

    #[test]
    fn all_libraries_can_be_declared() {
        let mut environment = Environment::default();
        for library in [
            STANDARD,
            OPTIONAL,
            STRINGS,
            SETS,
            LISTS,
            TWO_VARIABLES,
            URLS,
            REGEX,
            AUTHZ,
            AUTHZ_SELECTORS,
            QUANTITY,
            IP,
            CIDR,
            FORMAT,
            SEMVER,
            KUBERNETES_LISTS,
            BINDINGS,
        ] {
            environment.add_declarations(library.declarations).unwrap();
            environment.add_library(&library);
        }
    }
}
