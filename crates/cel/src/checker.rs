//! The type checker: gives every node a type, or says why it has none.

use std::sync::Arc;

use crate::ast::{Call, Comprehension, Expr, ExprKind, Literal, NodeId, Struct};
use crate::environment::{Environment, Overload};
use crate::issues::Issues;
use crate::types::Type;
use crate::unify::{Bindings, map_parameters, most_general};
use crate::well_known;

/// An expression without errors. Names in it are resolved: a call of `sets.contains` is a function call.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The expression.
    pub expr: Expr,
    types: Vec<Option<Type>>,
}

impl Checked {
    /// The type of the expression.
    #[must_use]
    pub fn output_type(&self) -> Type {
        self.type_of(self.expr.id)
    }

    /// The type of a part; nodes of another expression are dyn.
    #[must_use]
    pub fn type_of(&self, id: NodeId) -> Type {
        self.types.get(id).cloned().flatten().unwrap_or(Type::Dyn)
    }
}

/// Checks an expression that was parsed with the macros of the same environment.
///
/// # Errors
/// The errors that it has.
pub(crate) fn check(mut expr: Expr, environment: &Environment) -> Result<Checked, Issues> {
    let mut checker = Checker {
        environment,
        scopes: Vec::new(),
        bindings: Bindings::default(),
        types: Vec::new(),
        issues: Issues::default(),
    };
    checker.check(&mut expr);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let bindings = checker.bindings;
    let bound = |found: Option<Type>| found.map(|found| bindings.substitute(&found, true));
    Ok(Checked { expr, types: checker.types.into_iter().map(bound).collect() })
}

struct Checker<'a> {
    environment: &'a Environment,
    /// The variables of comprehensions, innermost last.
    scopes: Vec<(String, Type)>,
    bindings: Bindings,
    types: Vec<Option<Type>>,
    issues: Issues,
}

impl Checker<'_> {
    fn set_type(&mut self, id: NodeId, found: Type) {
        if self.types.len() <= id {
            self.types.resize(id + 1, None);
        }
        self.types[id] = Some(found);
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types.get(expr.id).cloned().flatten().unwrap_or(Type::Error)
    }

    fn check(&mut self, expr: &mut Expr) {
        let (id, offset) = (expr.id, expr.offset);
        let found = match &mut expr.kind {
            ExprKind::Literal(literal) => type_of_literal(literal),
            ExprKind::Ident(name) => self.ident(offset, name),
            ExprKind::Select(_) => return self.select(expr),
            ExprKind::Call(call) => self.call(offset, call),
            ExprKind::List(list) => {
                let mut element_type = None;
                for (index, element) in list.elements.iter_mut().enumerate() {
                    self.check(element);
                    let optional = list.optional.contains(&index);
                    let found = self.maybe_optional(element, optional);
                    element_type = Some(self.join(element_type, found));
                }
                Type::list(element_type.unwrap_or_else(|| self.bindings.new_variable()))
            }
            ExprKind::Map(entries) => {
                let mut joined: Option<(Type, Type)> = None;
                for entry in entries {
                    self.check(&mut entry.key);
                    let key = self.type_of(&entry.key);
                    let (keys, values) = joined.unzip();
                    let key = self.join(keys, key);
                    self.check(&mut entry.value);
                    let value = self.maybe_optional(&entry.value, entry.optional);
                    joined = Some((key, self.join(values, value)));
                }
                let (key, value) =
                    joined.unwrap_or_else(|| (self.bindings.new_variable(), self.bindings.new_variable()));
                Type::map(key, value)
            }
            ExprKind::Struct(built) => self.built(offset, built),
            ExprKind::Comprehension(fold) => self.comprehension(fold),
            ExprKind::Unspecified => Type::Error,
        };
        self.set_type(id, found);
    }

    /// The type of an element, unwrapped if it is written with a question mark.
    fn maybe_optional(&mut self, value: &Expr, optional: bool) -> Type {
        let found = self.type_of(value);
        if !optional {
            return found;
        }
        let (unwrapped, is_optional) = found.unwrap_optional();
        if !is_optional && !unwrapped.is_dyn() {
            self.mismatch(value.offset, &Type::optional(unwrapped.clone()), unwrapped);
        }
        unwrapped.clone()
    }

    fn mismatch(&mut self, offset: usize, expected: &Type, found: &Type) {
        self.issues.report(offset, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, offset: usize, name: &str) -> Type {
        self.issues.report(offset, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.bindings.assign(&previous, &current) {
            return most_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find(|(variable, _)| variable == name).map(|(_, found)| found)
    }

    fn ident(&mut self, offset: usize, name: &str) -> Type {
        if let Some(found) = self.local(name) {
            return found.clone();
        }
        match self.environment.global(name) {
            Some(found) => found,
            None => self.undeclared(offset, name),
        }
    }

    fn select(&mut self, expr: &mut Expr) {
        if let Some(name) = qualified_name(expr)
            && !self.starts_with_local(&name)
            && let Some(found) = self.environment.global(&name)
        {
            self.set_type(expr.id, found);
            expr.kind = ExprKind::Ident(name.trim_start_matches('.').to_owned());
            return;
        }
        let ExprKind::Select(select) = &mut expr.kind else { return };
        let mut found = self.field(expr.offset, &mut select.operand, &select.field, false);
        if select.test_only {
            found = Type::Bool;
        }
        let found = self.bindings.substitute(&found, false);
        self.set_type(expr.id, found);
    }

    fn starts_with_local(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or_default();
        !first.is_empty() && self.local(first).is_some()
    }

    fn field(&mut self, offset: usize, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.bindings.substitute(&self.type_of(operand), false);
        let (target, is_optional) = operand_type.unwrap_optional();
        let found = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Struct(name) => self.struct_field(offset, name, field).unwrap_or(Type::Error),
            parameter if parameter.is_parameter() => {
                self.bindings.assign(&Type::Dyn, parameter);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.issues.report(offset, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(found) } else { found }
    }

    fn struct_field(&mut self, offset: usize, name: &str, field: &str) -> Option<Type> {
        let found = match self.environment.struct_fields(name) {
            Some(fields) => fields.get(field).cloned(),
            None => match well_known::message_field(name, field) {
                Some(found) => found,
                None => {
                    self.issues.report(offset, format!("unexpected failed resolution of '{name}'"));
                    return None;
                }
            },
        };
        if found.is_none() {
            self.issues.report(offset, format!("undefined field '{field}'"));
        }
        found
    }

    fn call(&mut self, offset: usize, call: &mut Call) -> Type {
        if call.function == "_?._" {
            return self.optional_select(offset, call);
        }
        call.args.iter_mut().for_each(|arg| self.check(arg));
        let environment = self.environment;
        let Some(target) = &mut call.target else {
            let Some((name, overloads)) = environment.function(&call.function) else {
                return self.undeclared(offset, &call.function);
            };
            name.clone_into(&mut call.function);
            return self.resolve(offset, call, overloads);
        };
        if let Some(prefix) = qualified_name(target) {
            let qualified = format!("{prefix}.{}", call.function);
            if let Some((name, overloads)) = environment.function(&qualified) {
                name.clone_into(&mut call.function);
                call.target = None;
                return self.resolve(offset, call, overloads);
            }
        }
        self.check(target);
        match environment.function(&call.function) {
            Some((_, overloads)) => self.resolve(offset, call, overloads),
            None => self.undeclared(offset, &call.function),
        }
    }

    fn optional_select(&mut self, offset: usize, call: &mut Call) -> Type {
        let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = &mut call.args[..]
        else {
            return Type::Error;
        };
        let found = self.field(offset, operand, field, true);
        self.bindings.substitute(&found, false)
    }

    fn resolve(&mut self, offset: usize, call: &Call, overloads: &[Overload]) -> Type {
        if call.function == "_&&_" || call.function == "_||_" {
            return self.logical(&call.args);
        }
        let arguments: Vec<Type> =
            call.target.iter().chain(&call.args).map(|argument| self.type_of(argument)).collect();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.is_member == call.target.is_some()) {
            let (expected, found) = self.instantiate(overload);
            if !self.bindings.assign_all(&arguments, &expected) {
                continue;
            }
            let found = self.bindings.substitute(&found, false);
            result = Some(match result {
                None => found,
                Some(first) if first.is_dyn() || found.is_exactly(&first) => first,
                Some(_) => Type::Dyn,
            });
        }
        result.unwrap_or_else(|| self.no_overload(offset, call, &arguments))
    }

    fn no_overload(&mut self, offset: usize, call: &Call, arguments: &[Type]) -> Type {
        let mut shown: Vec<String> =
            arguments.iter().map(|argument| self.bindings.substitute(argument, true).to_string()).collect();
        let receiver = if call.target.is_some() { format!("{}.", shown.remove(0)) } else { String::new() };
        let message = format!(
            "found no matching overload for '{}' applied to '{receiver}({})'",
            call.function,
            shown.join(", ")
        );
        self.issues.report(offset, message);
        Type::Error
    }

    fn logical(&mut self, args: &[Expr]) -> Type {
        let mut result = Type::Bool;
        for arg in args {
            let found = self.type_of(arg);
            if !self.bindings.assign(&found, &Type::Bool) {
                self.mismatch(arg.offset, &Type::Bool, &found);
                result = Type::Error;
            }
        }
        result
    }

    /// The argument and result types of an overload, with variables of its own.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        if overload.parameters.is_empty() {
            return (overload.arguments.clone(), overload.result.clone());
        }
        let variables: Vec<(Arc<str>, Type)> =
            overload.parameters.iter().map(|name| (Arc::clone(name), self.bindings.new_variable())).collect();
        let arguments = overload.arguments.iter().map(|one| with_variables(one, &variables)).collect();
        (arguments, with_variables(&overload.result, &variables))
    }

    fn built(&mut self, offset: usize, built: &mut Struct) -> Type {
        let Some(named) = self.environment.named_type(&built.type_name) else {
            return self.undeclared(offset, &built.type_name);
        };
        let (message, result) = match (&named, well_known::message_of(&named)) {
            (_, Some(message)) => (message.to_owned(), named),
            (Type::Struct(name), None) => (name.to_string(), named),
            (other, None) => {
                self.issues.report(offset, format!("'{}' is not a message type", other.declared_name()));
                (built.type_name.trim_start_matches('.').to_owned(), Type::Error)
            }
        };
        for field in &mut built.fields {
            self.check(&mut field.value);
            let expected = self.struct_field(field.offset, &message, &field.name).unwrap_or(Type::Error);
            let found = self.maybe_optional(&field.value, field.optional);
            if !self.bindings.assign(&expected, &found) {
                let message = format!(
                    "expected type of field '{}' is '{expected}' but provided type is '{found}'",
                    field.name
                );
                self.issues.report(field.offset, message);
            }
        }
        result
    }

    fn comprehension(&mut self, fold: &mut Comprehension) -> Type {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self.bindings.substitute(&self.type_of(&fold.range), false);
        let accumulated = self.type_of(&fold.init);
        let (first, second) = self.iterated(fold, &range);
        let outer = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        self.scopes.push((fold.variable.clone(), first));
        if let Some(variable) = &fold.second_variable {
            self.scopes.push((variable.clone(), second));
        }
        self.check(&mut fold.condition);
        self.assert_type(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.assert_type(&fold.step, &accumulated);
        self.scopes.truncate(outer + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(outer);
        self.bindings.substitute(&self.type_of(&fold.result), false)
    }

    /// The types of the variables of a comprehension.
    fn iterated(&mut self, fold: &Comprehension, range: &Type) -> (Type, Type) {
        match range {
            Type::List(element) if fold.second_variable.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            other if matches!(other, Type::Dyn | Type::Error) || other.is_parameter() => {
                self.bindings.assign(&Type::Dyn, other);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                self.issues.report(fold.range.offset, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn assert_type(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.bindings.assign(expected, &found) {
            self.mismatch(expr.offset, expected, &found);
        }
    }
}

fn with_variables(named: &Type, variables: &[(Arc<str>, Type)]) -> Type {
    match named {
        Type::Parameter(name) => {
            let found = variables.iter().find(|(parameter, _)| parameter == name);
            found.map_or(Type::Dyn, |(_, variable)| variable.clone())
        }
        other => map_parameters(other, &|parameter| with_variables(parameter, variables), false),
    }
}

/// The name that a chain of selections spells.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.clone()),
        ExprKind::Select(select) if !select.test_only => {
            let prefix = qualified_name(&select.operand)?;
            Some(format!("{prefix}.{}", select.field))
        }
        _ => None,
    }
}

fn type_of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Bool(_) => Type::Bool,
        Literal::Bytes(_) => Type::Bytes,
        Literal::Double(_) => Type::Double,
        Literal::Int(_) => Type::Int,
        Literal::Null => Type::Null,
        Literal::String(_) => Type::String,
        Literal::Uint(_) => Type::Uint,
    }
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
