//! CEL expressions, and the types that OpenAPI documents give them.

use std::sync::LazyLock;

use keleustes_cel::kubernetes::{ObjectType, OpenApiDocument, PolicyEnvironment};
use keleustes_cel::macros::{self, MacroDeclaration};
use keleustes_cel::{Source, parse};

use crate::text;

const DOCUMENT: &str = include_str!("openapi.json");

static OBJECT: LazyLock<ObjectType> = LazyLock::new(|| {
    let document = OpenApiDocument::from_json(DOCUMENT.as_bytes());
    let document = document.unwrap_or_else(|error| panic!("the document of this crate: {error}"));
    let object = document.object_type("example.com", "v1", "Thing", "Thing1").flatten();
    object.unwrap_or_else(|| panic!("the document of this crate has no Thing"))
});

static MACROS: LazyLock<Vec<MacroDeclaration>> = LazyLock::new(|| {
    [macros::STANDARD, macros::TWO_VARIABLES, macros::OPTIONALS, macros::SORT_BY, macros::BIND].concat()
});

/// A line break at the end changes nothing.
pub(crate) fn parser(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let (source, longer) = (Source::new(text), Source::new(&format!("{text}\n")));
    match (parse(&source, &MACROS), parse(&longer, &MACROS)) {
        (Ok(one), Ok(other)) => assert_eq!(format!("{one:?}"), format!("{other:?}")),
        (Err(issues), Err(_)) => assert!(!issues.display(&source).is_empty(), "errors without text"),
        _ => panic!("a line break at the end decides whether {text:?} is an expression"),
    }
}

/// The first line is a variable of the policy, the rest an expression.
pub(crate) fn checker(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let (variable, expression) = text.split_once('\n').unwrap_or(("1", text));
    let mut environment = PolicyEnvironment::new(Some(&OBJECT)).with_params(None);
    environment.add_policy_variable("first", variable);
    let errors = environment.errors_of(expression);
    assert_eq!(errors, environment.errors_of(expression), "checked twice");
    assert_ne!(errors.as_deref(), Some(""), "errors without text");
}

/// A document whose kind `Thing` becomes a type, and an expression with it.
pub(crate) fn openapi(input: &[u8]) {
    let Ok(document) = OpenApiDocument::from_json(input) else { return };
    let object = document.object_type("example.com", "v1", "Thing", "Thing1");
    let environment = PolicyEnvironment::new(object.flatten().as_ref());
    let _ = environment.errors_of("object.spec.list.all(x, x.name == object.metadata.name)");
    let _ = environment.errors_of("has(object.spec) && object == oldObject");
}
