//! Macros: calls that the parser replaces by other expressions.

use crate::ast::{Call, Comprehension, Expr, ExprKind, List, Literal, MapEntry, Select, Struct, StructField};
use crate::parser::Parser;

/// The accumulator of comprehensions; no expression can name it.
const ACCUMULATOR: &str = "@result";
/// Its former name, which iteration variables still must not have.
const FORMER_ACCUMULATOR: &str = "__result__";
/// The iteration variable of comprehensions that only bind a name.
const UNUSED: &str = "#unused";

/// A macro: the calls that it replaces, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacroDeclaration {
    /// The name of the function.
    pub function: &'static str,
    /// Whether it is called on a receiver.
    pub is_receiver: bool,
    /// How many arguments it has.
    pub arguments: usize,
    expansion: Expansion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expansion {
    Has,
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    AllPairs,
    ExistsPair,
    ExistsOnePair,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
    Bind,
}

const fn receiver(function: &'static str, arguments: usize, expansion: Expansion) -> MacroDeclaration {
    MacroDeclaration { function, is_receiver: true, arguments, expansion }
}

/// The macros of the language itself, without the newer spelling `existsOne`.
pub const STANDARD: &[MacroDeclaration] = &[
    MacroDeclaration { function: "has", is_receiver: false, arguments: 1, expansion: Expansion::Has },
    receiver("all", 2, Expansion::All),
    receiver("exists", 2, Expansion::Exists),
    receiver("exists_one", 2, Expansion::ExistsOne),
    receiver("map", 2, Expansion::Map),
    receiver("map", 3, Expansion::Map),
    receiver("filter", 2, Expansion::Filter),
];

/// Comprehensions with two variables.
pub const TWO_VARIABLES: &[MacroDeclaration] = &[
    receiver("all", 3, Expansion::AllPairs),
    receiver("exists", 3, Expansion::ExistsPair),
    receiver("existsOne", 3, Expansion::ExistsOnePair),
    receiver("exists_one", 3, Expansion::ExistsOnePair),
    receiver("transformList", 3, Expansion::TransformList),
    receiver("transformList", 4, Expansion::TransformList),
    receiver("transformMap", 3, Expansion::TransformMap),
    receiver("transformMap", 4, Expansion::TransformMap),
    receiver("transformMapEntry", 3, Expansion::TransformMapEntry),
    receiver("transformMapEntry", 4, Expansion::TransformMapEntry),
];

/// The macros of optional values.
pub const OPTIONALS: &[MacroDeclaration] =
    &[receiver("optMap", 2, Expansion::OptMap), receiver("optFlatMap", 2, Expansion::OptFlatMap)];

/// The macro of the lists library.
pub const SORT_BY: &[MacroDeclaration] = &[receiver("sortBy", 2, Expansion::SortBy)];

/// `cel.bind(name, value, expression)`.
pub const BIND: &[MacroDeclaration] = &[receiver("bind", 3, Expansion::Bind)];

pub(crate) enum MacroError {
    /// Only the name is that of the macro.
    NotThisMacro(Box<Call>),
    Wrong {
        offset: usize,
        message: String,
    },
}

type Expanded = Result<Expr, MacroError>;

fn wrong(at: &Expr, message: impl Into<String>) -> MacroError {
    MacroError::Wrong { offset: at.offset, message: message.into() }
}

impl MacroDeclaration {
    pub(crate) fn expand(&self, parser: &mut Parser<'_>, offset: usize, call: Call) -> Expanded {
        let mut make = Maker { parser, offset };
        if self.expansion == Expansion::Bind {
            return bind(&mut make, call);
        }
        let Call { target, args, function } = call;
        let Some(target) = target else { return has(&mut make, args) };
        match self.expansion {
            Expansion::All | Expansion::Exists | Expansion::ExistsOne => {
                let variable = variable(&args[0], "argument must be a simple name")?;
                make.quantifier(self.expansion, target, variable, None, args)
            }
            Expansion::AllPairs | Expansion::ExistsPair | Expansion::ExistsOnePair => {
                let (first, second) = two_variables(&args)?;
                make.quantifier(self.expansion, target, first, Some(second), args)
            }
            Expansion::Map | Expansion::Filter => {
                let variable = variable(&args[0], "argument is not an identifier")?;
                Ok(make.map(self.expansion, target, variable, args))
            }
            Expansion::TransformList | Expansion::TransformMap | Expansion::TransformMapEntry => {
                let variables = two_variables(&args)?;
                Ok(make.transform(self.expansion, target, variables, args))
            }
            Expansion::OptMap | Expansion::OptFlatMap => {
                make.opt_map(self.expansion, &function, target, args)
            }
            Expansion::SortBy => make.sort_by(target, args),
            Expansion::Has | Expansion::Bind => Ok(make.unspecified()),
        }
    }
}

fn has(make: &mut Maker<'_, '_>, mut args: Vec<Expr>) -> Expanded {
    match args.pop() {
        Some(Expr { kind: ExprKind::Select(select), .. }) => {
            let select = Select { test_only: true, ..*select };
            Ok(make.node(ExprKind::Select(Box::new(select))))
        }
        Some(other) => Err(wrong(&other, "invalid argument to has() macro")),
        None => Ok(make.unspecified()),
    }
}

fn bind(make: &mut Maker<'_, '_>, mut call: Call) -> Expanded {
    if call.target.as_ref().and_then(Expr::as_ident) != Some("cel") {
        return Err(MacroError::NotThisMacro(Box::new(call)));
    }
    let (Some(result), Some(init), Some(name)) = (call.args.pop(), call.args.pop(), call.args.pop()) else {
        return Ok(make.unspecified());
    };
    let Some(variable) = name.as_ident().map(str::to_owned) else {
        return Err(wrong(&name, "cel.bind() variable names must be simple identifiers"));
    };
    Ok(make.bound(variable, init, result))
}

fn variable(arg: &Expr, message: &str) -> Result<String, MacroError> {
    let name = arg.as_ident().ok_or_else(|| wrong(arg, message))?;
    not_accumulator(arg, name)?;
    Ok(name.to_owned())
}

fn not_accumulator(arg: &Expr, name: &str) -> Result<(), MacroError> {
    if name == ACCUMULATOR || name == FORMER_ACCUMULATOR {
        return Err(wrong(arg, "iteration variable overwrites accumulator variable"));
    }
    Ok(())
}

fn two_variables(args: &[Expr]) -> Result<(String, String), MacroError> {
    let name = |arg: &Expr| {
        arg.as_ident().map(str::to_owned).ok_or_else(|| wrong(arg, "argument must be a simple name"))
    };
    let (first, second) = (name(&args[0])?, name(&args[1])?);
    if first == second {
        return Err(wrong(&args[1], format!("duplicate variable name: {first}")));
    }
    not_accumulator(&args[0], &first)?;
    not_accumulator(&args[1], &second)?;
    Ok((first, second))
}

/// Makes nodes at the place of the macro.
struct Maker<'p, 'm> {
    parser: &'p mut Parser<'m>,
    offset: usize,
}

impl Maker<'_, '_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        self.parser.node(self.offset, kind)
    }

    fn unspecified(&mut self) -> Expr {
        self.node(ExprKind::Unspecified)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List(List { elements, optional: Vec::new() }))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.parser.call(self.offset, function, args)
    }

    fn member_call(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let call = Call { function: function.to_owned(), target: Some(target), args };
        self.node(ExprKind::Call(Box::new(call)))
    }

    fn comprehension(&mut self, fold: Comprehension) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(fold)))
    }

    /// `let name = init; result`, written as a comprehension over nothing.
    fn bound(&mut self, name: String, init: Expr, result: Expr) -> Expr {
        let fold = Comprehension {
            range: self.list(Vec::new()),
            variable: UNUSED.to_owned(),
            second_variable: None,
            condition: self.literal(Literal::Bool(false)),
            step: self.ident(&name),
            accumulator: name,
            init,
            result,
        };
        self.comprehension(fold)
    }

    fn quantifier(
        &mut self,
        expansion: Expansion,
        range: Expr,
        variable: String,
        second_variable: Option<String>,
        mut args: Vec<Expr>,
    ) -> Expanded {
        let Some(predicate) = args.pop() else { return Ok(self.unspecified()) };
        let accumulator = self.accumulator();
        let (init, condition, step, result) = match expansion {
            Expansion::All | Expansion::AllPairs => (
                Literal::Bool(true),
                self.call("@not_strictly_false", vec![accumulator]),
                self.folded("_&&_", predicate),
                self.accumulator(),
            ),
            Expansion::Exists | Expansion::ExistsPair => {
                let not = self.call("!_", vec![accumulator]);
                (
                    Literal::Bool(false),
                    self.call("@not_strictly_false", vec![not]),
                    self.folded("_||_", predicate),
                    self.accumulator(),
                )
            }
            _ => {
                let one = self.literal(Literal::Int(1));
                let more = self.folded("_+_", one);
                let (one, total) = (self.literal(Literal::Int(1)), self.accumulator());
                (
                    Literal::Int(0),
                    self.literal(Literal::Bool(true)),
                    self.call("_?_:_", vec![predicate, more, accumulator]),
                    self.call("_==_", vec![total, one]),
                )
            }
        };
        let init = self.literal(init);
        let accumulator = ACCUMULATOR.to_owned();
        let fold =
            Comprehension { range, variable, second_variable, accumulator, init, condition, step, result };
        Ok(self.comprehension(fold))
    }

    /// The accumulator and a value under an operator.
    fn folded(&mut self, function: &str, value: Expr) -> Expr {
        let accumulator = self.accumulator();
        self.call(function, vec![accumulator, value])
    }

    fn map(&mut self, expansion: Expansion, range: Expr, variable: String, mut args: Vec<Expr>) -> Expr {
        let last = args.pop().unwrap_or_else(|| self.unspecified());
        let (filter, element) = match (expansion, args.pop()) {
            (Expansion::Filter, Some(element)) => (Some(last), element),
            (_, Some(filter)) if !args.is_empty() => (Some(filter), last),
            _ => (None, last),
        };
        let appended = self.list(vec![element]);
        let step = self.folded("_+_", appended);
        let init = self.list(Vec::new());
        self.collected(range, (variable, None), init, filter, step)
    }

    fn transform(
        &mut self,
        expansion: Expansion,
        range: Expr,
        (first, second): (String, String),
        mut args: Vec<Expr>,
    ) -> Expr {
        let transform = args.pop().unwrap_or_else(|| self.unspecified());
        let filter = if args.len() == 3 { args.pop() } else { None };
        let step = match expansion {
            Expansion::TransformList => {
                let appended = self.list(vec![transform]);
                self.folded("_+_", appended)
            }
            Expansion::TransformMap => {
                let (accumulator, key) = (self.accumulator(), self.ident(&first));
                self.call("cel.@mapInsert", vec![accumulator, key, transform])
            }
            _ => self.folded("cel.@mapInsert", transform),
        };
        let init = match expansion {
            Expansion::TransformList => self.list(Vec::new()),
            _ => self.node(ExprKind::Map(Vec::new())),
        };
        self.collected(range, (first, Some(second)), init, filter, step)
    }

    fn collected(
        &mut self,
        range: Expr,
        (variable, second_variable): (String, Option<String>),
        init: Expr,
        filter: Option<Expr>,
        step: Expr,
    ) -> Expr {
        let step = match filter {
            None => step,
            Some(filter) => {
                let unchanged = self.accumulator();
                self.call("_?_:_", vec![filter, step, unchanged])
            }
        };
        let condition = self.literal(Literal::Bool(true));
        let result = self.accumulator();
        let accumulator = ACCUMULATOR.to_owned();
        let fold =
            Comprehension { range, variable, second_variable, accumulator, init, condition, step, result };
        self.comprehension(fold)
    }

    fn opt_map(
        &mut self,
        expansion: Expansion,
        function: &str,
        target: Expr,
        mut args: Vec<Expr>,
    ) -> Expanded {
        let (Some(mapped), Some(name)) = (args.pop(), args.pop()) else { return Ok(self.unspecified()) };
        let Some(variable) = name.as_ident().map(str::to_owned) else {
            return Err(wrong(&name, format!("{function}() variable name must be a simple identifier")));
        };
        let copied = self.copy(&target);
        let value = self.member_call("value", copied, Vec::new());
        let present = self.member_call("hasValue", target, Vec::new());
        let mut result = self.bound(variable, value, mapped);
        if expansion == Expansion::OptMap {
            result = self.call("optional.of", vec![result]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![present, result, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Expanded {
        if matches!(
            target.kind,
            ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct(_) | ExprKind::Unspecified
        ) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(wrong(&target, message));
        }
        let name = "@__sortBy_input__";
        let variable = variable(&args[0], "argument is not an identifier")?;
        let input = self.ident(name);
        let keys = self.map(Expansion::Map, input, variable, args);
        let input = self.ident(name);
        let sorted = self.member_call("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bound(name.to_owned(), target, sorted))
    }

    /// The same expression with nodes of its own.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let offset = self.offset;
        let kind = match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Unspecified => expr.kind.clone(),
            ExprKind::Select(select) => {
                let operand = self.copy(&select.operand);
                ExprKind::Select(Box::new(Select { operand, ..(**select).clone() }))
            }
            ExprKind::Call(call) => {
                let target = call.target.as_ref().map(|target| self.copy(target));
                let args = call.args.iter().map(|arg| self.copy(arg)).collect();
                ExprKind::Call(Box::new(Call { function: call.function.clone(), target, args }))
            }
            ExprKind::List(list) => {
                let elements = list.elements.iter().map(|element| self.copy(element)).collect();
                ExprKind::List(List { elements, optional: list.optional.clone() })
            }
            ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            ExprKind::Struct(built) => {
                let fields = built.fields.iter().map(|field| {
                    let value = self.copy(&field.value);
                    StructField { offset, name: field.name.clone(), value, optional: field.optional }
                });
                ExprKind::Struct(Struct { fields: fields.collect(), type_name: built.type_name.clone() })
            }
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
                variable: fold.variable.clone(),
                second_variable: fold.second_variable.clone(),
                accumulator: fold.accumulator.clone(),
            })),
        };
        self.parser.node(expr.offset, kind)
    }
}
