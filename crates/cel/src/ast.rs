//! The syntax tree: what the parser makes and the checker reads.

/// Identifies a node; the checker notes types by it.
pub type NodeId = usize;

/// A node with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Unique within one tree.
    pub id: NodeId,
    /// The offset, in code points, at which errors about the node are shown.
    pub offset: usize,
    /// What the node is.
    pub kind: ExprKind,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Literal(Literal),
    /// A variable, or the name of a type. A leading dot means the outermost scope.
    Ident(String),
    /// `operand.field`.
    Select(Box<Select>),
    /// A function or member call, and every operator.
    Call(Box<Call>),
    /// `[a, b]`.
    List(List),
    /// `{a: b}`.
    Map(Vec<MapEntry>),
    /// `some.Type{field: value}`.
    Struct(Struct),
    /// What the macros that iterate become.
    Comprehension(Box<Comprehension>),
    /// Stands where the parser reported an error.
    Unspecified,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// `b'…'`.
    Bytes(Vec<u8>),
    /// `1.5`.
    Double(f64),
    /// `1`.
    Int(i64),
    /// `null`.
    Null,
    /// `'…'`.
    String(String),
    /// `1u`.
    Uint(u64),
}

/// The selection of a field, or the test whether it is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// What has the field.
    pub operand: Expr,
    /// The field's name.
    pub field: String,
    /// Whether it comes from `has()`.
    pub test_only: bool,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name of the function; operators have names such as `_+_`.
    pub function: String,
    /// The receiver of a member call.
    pub target: Option<Expr>,
    /// The arguments.
    pub args: Vec<Expr>,
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    /// The elements.
    pub elements: Vec<Expr>,
    /// Which elements are written `?element`.
    pub optional: Vec<usize>,
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether it is written `?key: value`.
    pub optional: bool,
}

/// A message that is built from fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// The name of the type.
    pub type_name: String,
    /// The fields.
    pub fields: Vec<StructField>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct StructField {
    /// The offset of its colon.
    pub offset: usize,
    /// The name.
    pub name: String,
    /// The value.
    pub value: Expr,
    /// Whether it is written `?name: value`.
    pub optional: bool,
}

/// A fold over a list or a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Comprehension {
    /// What is iterated over.
    pub range: Expr,
    /// The variable of the element or key; with a second variable, of the index or key.
    pub variable: String,
    /// The variable of the element or value, in a comprehension with two variables.
    pub second_variable: Option<String>,
    /// The name of the accumulator.
    pub accumulator: String,
    /// Its first value.
    pub init: Expr,
    /// Whether to go on.
    pub condition: Expr,
    /// The accumulator's next value.
    pub step: Expr,
    /// The result.
    pub result: Expr,
}

impl Expr {
    /// The direct parts of the node, in the order in which they are checked and validated.
    #[must_use]
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Unspecified => Vec::new(),
            ExprKind::Select(select) => vec![&select.operand],
            ExprKind::Call(call) => call.target.iter().chain(&call.args).collect(),
            ExprKind::List(list) => list.elements.iter().collect(),
            ExprKind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            ExprKind::Struct(built) => built.fields.iter().map(|field| &field.value).collect(),
            ExprKind::Comprehension(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }

    /// The name as an identifier, if it is one.
    #[must_use]
    pub fn as_ident(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }
}
