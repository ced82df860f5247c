//! The environment of Kubernetes 1.37: its libraries, and what the expressions of an admission policy can name.

mod schema;

use std::sync::{Arc, LazyLock};

use crate::environment::{Environment, Fields, StructTypes};
use crate::libraries::{
    AUTHZ, AUTHZ_SELECTORS, CIDR, FORMAT, IP, KUBERNETES_LISTS, LISTS, OPTIONAL, QUANTITY, REGEX, SEMVER,
    SETS, STANDARD, STRINGS, TWO_VARIABLES, URLS,
};
use crate::source::Source;
use crate::types::Type;

pub use schema::{ObjectType, OpenApiDocument, Schema};

const REQUEST: &str = "kubernetes.AdmissionRequest";
const NAMESPACE: &str = "kubernetes.Namespace";
const VARIABLES: &str = "kubernetes.variables";

/// Names that the original's type provider knows as types without fields.
const SCALARS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "int", "null_type", "string", "timestamp", "uint", "list"];

/// The hand-made types, each with its fields as `name: type`.
const TYPES: &[(&str, &[(&str, &str)])] = &[
    ("kubernetes.GroupVersionKind", &[("group", "string"), ("version", "string"), ("kind", "string")]),
    (
        "kubernetes.GroupVersionResource",
        &[("group", "string"), ("version", "string"), ("resource", "string")],
    ),
    (
        "kubernetes.UserInfo",
        &[
            ("username", "string"),
            ("uid", "string"),
            ("groups", "list(string)"),
            ("extra", "map(string, list(string))"),
        ],
    ),
    (
        REQUEST,
        &[
            ("kind", "kubernetes.GroupVersionKind"),
            ("resource", "kubernetes.GroupVersionResource"),
            ("subResource", "string"),
            ("requestKind", "kubernetes.GroupVersionKind"),
            ("requestResource", "kubernetes.GroupVersionResource"),
            ("requestSubResource", "string"),
            ("name", "string"),
            ("namespace", "string"),
            ("operation", "string"),
            ("userInfo", "kubernetes.UserInfo"),
            ("dryRun", "bool"),
            ("options", "dyn"),
        ],
    ),
    ("kubernetes.NamespaceSpec", &[("finalizers", "list(string)")]),
    (
        "kubernetes.NamespaceCondition",
        &[
            ("status", "string"),
            ("type", "string"),
            ("lastTransitionTime", "timestamp"),
            ("message", "string"),
            ("reason", "string"),
        ],
    ),
    (
        "kubernetes.NamespaceStatus",
        &[("conditions", "list(kubernetes.NamespaceCondition)"), ("phase", "string")],
    ),
    (
        "kubernetes.NamespaceMetadata",
        &[
            ("name", "string"),
            ("generateName", "string"),
            ("namespace", "string"),
            ("labels", "map(string, string)"),
            ("annotations", "map(string, string)"),
            ("UID", "string"),
            ("creationTimestamp", "timestamp"),
            ("deletionGracePeriodSeconds", "int"),
            ("deletionTimestamp", "timestamp"),
            ("generation", "int"),
            ("resourceVersion", "string"),
            ("finalizers", "list(string)"),
        ],
    ),
    (
        NAMESPACE,
        &[
            ("metadata", "kubernetes.NamespaceMetadata"),
            ("spec", "kubernetes.NamespaceSpec"),
            ("status", "kubernetes.NamespaceStatus"),
        ],
    ),
];

static BASE: LazyLock<Environment> = LazyLock::new(|| {
    let mut environment = Environment::default();
    // In the order of the original: it decides the order of overloads that several libraries add to one function.
    for library in [
        STANDARD,
        URLS,
        REGEX,
        AUTHZ,
        OPTIONAL,
        QUANTITY,
        STRINGS,
        SETS,
        IP,
        CIDR,
        FORMAT,
        AUTHZ_SELECTORS,
        TWO_VARIABLES,
        SEMVER,
        LISTS,
        KUBERNETES_LISTS,
    ] {
        environment.add_library(&library);
    }
    environment.add_type_name("duration", Type::Duration);
    environment.add_type_name("timestamp", Type::Timestamp);
    let mut structs = StructTypes::new();
    for (name, fields) in TYPES {
        let fields = fields.iter().map(|(field, of)| ((*field).into(), environment.read_type(of)));
        structs.insert((*name).into(), Arc::new(fields.collect()));
    }
    for name in SCALARS {
        structs.insert(name.into(), Arc::default());
    }
    environment.add_structs(Arc::new(structs));
    environment
});

/// The environment of stored expressions: every library in its newest version, and no variables.
#[must_use]
pub fn environment() -> Environment {
    BASE.clone()
}

/// What the expressions of a policy can name.
#[derive(Clone, Debug)]
pub struct PolicyEnvironment {
    environment: Environment,
    variables: Fields,
}

impl PolicyEnvironment {
    /// The environment for objects of one kind; `None` if their type is not known.
    #[must_use]
    pub fn new(object: Option<&ObjectType>) -> Self {
        let mut environment = environment();
        environment.add_variable("namespaceObject", Type::Struct(NAMESPACE.into()));
        environment.add_variable("request", Type::Struct(REQUEST.into()));
        environment.add_variable("authorizer", Type::Struct("kubernetes.authorization.Authorizer".into()));
        environment.add_variable("variables", Type::Struct(VARIABLES.into()));
        let mut made = Self { environment, variables: Fields::new() };
        made.add_object("object", object);
        made.add_object("oldObject", object);
        made.declare_variables();
        made
    }

    /// Declares `params`, of this type or, if it is not known, of any.
    #[must_use]
    pub fn with_params(mut self, params: Option<&ObjectType>) -> Self {
        self.add_object("params", params);
        self
    }

    /// Compiles an expression of `spec.variables`, which later expressions can use. If it has errors, its type is
    /// not known.
    pub fn add_policy_variable(&mut self, name: &str, expression: &str) {
        let output = self.environment.compile(&Source::new(expression)).map(|checked| checked.output_type());
        self.variables.insert(name.into(), output.map_or(Type::Dyn, |output| of_variable(&output)));
        self.declare_variables();
    }

    /// The errors of an expression, as the status of a policy shows them; `None` if there are none.
    #[must_use]
    pub fn errors_of(&self, expression: &str) -> Option<String> {
        let source = Source::new(expression);
        self.environment.compile(&source).err().map(|issues| issues.display(&source))
    }

    fn add_object(&mut self, variable: &str, of: Option<&ObjectType>) {
        let declared = of.map_or(Type::Dyn, |object| {
            self.environment.add_structs(Arc::clone(&object.structs));
            object.root.clone()
        });
        self.environment.add_variable(variable, declared);
    }

    fn declare_variables(&mut self) {
        let fields = Arc::new(self.variables.clone());
        self.environment.add_structs(Arc::new(StructTypes::from([(VARIABLES.into(), fields)])));
    }
}

/// The type of a variable: only plain types, lists and maps of them are kept.
fn of_variable(output: &Type) -> Type {
    match output {
        Type::List(element) => Type::list(of_variable(element)),
        Type::Map(key, value) => Type::map(of_variable(key), of_variable(value)),
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => output.clone(),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod function_tests;
#[cfg(test)]
mod tests;
