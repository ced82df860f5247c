//! Which types can stand for which, and what the type variables of calls are bound to.

use std::sync::Arc;

use crate::types::Type;

/// What type variables are bound to.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// Earlier bindings, so that a failed attempt can be undone.
    changed: Vec<(usize, Option<Type>)>,
}

impl Bindings {
    pub(crate) fn new_variable(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(self.bound.len() - 1)
    }

    /// Whether one type can stand for the other; if so, variables are bound, otherwise nothing changes.
    pub(crate) fn assign(&mut self, one: &Type, other: &Type) -> bool {
        self.attempt(|bindings| bindings.is_assignable(one, other))
    }

    /// The same for lists of types.
    pub(crate) fn assign_all(&mut self, ones: &[Type], others: &[Type]) -> bool {
        self.attempt(|bindings| {
            ones.len() == others.len()
                && ones.iter().zip(others).all(|(one, other)| bindings.is_assignable(one, other))
        })
    }

    fn attempt(&mut self, try_to: impl FnOnce(&mut Self) -> bool) -> bool {
        self.changed.clear();
        let succeeded = try_to(self);
        if !succeeded {
            while let Some((variable, earlier)) = self.changed.pop() {
                self.bound[variable] = earlier;
            }
        }
        succeeded
    }

    fn bind(&mut self, variable: usize, to: Type) {
        let earlier = self.bound[variable].replace(to);
        self.changed.push((variable, earlier));
    }

    fn find(&self, named: &Type) -> Option<&Type> {
        match named {
            Type::Variable(variable) => self.bound[*variable].as_ref(),
            _ => None,
        }
    }

    /// Replaces bound variables by their types, and unbound ones by dyn if asked to.
    pub(crate) fn substitute(&self, named: &Type, unbound_to_dyn: bool) -> Type {
        if let Some(bound) = self.find(named) {
            return self.substitute(bound, unbound_to_dyn);
        }
        map_parameters(named, &|parameter| self.substitute(parameter, unbound_to_dyn), unbound_to_dyn)
    }

    fn is_assignable(&mut self, one: &Type, other: &Type) -> bool {
        if let Type::Variable(variable) = other {
            match self.substitutes(one, *variable) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Variable(variable) = one {
            return self.substitutes(other, *variable).0;
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        match (one, other) {
            (Type::Null, nullable) | (nullable, Type::Null) => is_nullable(nullable),
            (Type::Type(_), _) => matches!(other, Type::Type(_)),
            (Type::List(one), Type::List(other)) => self.is_assignable(one, other),
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.is_assignable(key, other_key) && self.is_assignable(value, other_value)
            }
            (Type::Opaque(name, ones), Type::Opaque(other_name, others)) => {
                name == other_name
                    && ones.len() == others.len()
                    && ones.iter().zip(others.iter()).all(|(one, other)| self.is_assignable(one, other))
            }
            (Type::List(_) | Type::Map(..) | Type::Opaque(..), _) => false,
            // Parameters of declarations are replaced by variables before this.
            (_, Type::Parameter(_)) => true,
            _ => one.is_exactly(other),
        }
    }

    /// Whether a type can stand for a variable, and whether the variable was bound already.
    fn substitutes(&mut self, named: &Type, variable: usize) -> (bool, bool) {
        if matches!(named, Type::Variable(other) if *other == variable) {
            return (true, true);
        }
        if let Some(bound) = self.bound[variable].clone() {
            if named.kind() == bound.kind() && named.is_exactly(&bound) {
                return (true, true);
            }
            if !self.is_assignable(named, &bound) {
                return (false, true);
            }
            let general = most_general(named, &bound).clone();
            if !self.occurs(variable, &general) {
                self.bind(variable, general);
            }
            return (true, true);
        }
        if self.occurs(variable, named) {
            return (false, false);
        }
        self.bind(variable, named.clone());
        (true, false)
    }

    /// Whether a variable is part of a type.
    fn occurs(&self, variable: usize, within: &Type) -> bool {
        match within {
            Type::Variable(other) if *other == variable => true,
            Type::Variable(_) => self.find(within).is_some_and(|bound| self.occurs(variable, bound)),
            other => other.parameters().into_iter().any(|parameter| self.occurs(variable, parameter)),
        }
    }
}

/// The same type with other parameters.
pub(crate) fn map_parameters(named: &Type, map: &dyn Fn(&Type) -> Type, unbound_to_dyn: bool) -> Type {
    match named {
        Type::Variable(_) | Type::Parameter(_) if unbound_to_dyn => Type::Dyn,
        Type::List(element) => Type::list(map(element)),
        Type::Map(key, value) => Type::map(map(key), map(value)),
        Type::Opaque(name, parameters) => {
            Type::Opaque(Arc::clone(name), parameters.iter().map(map).collect())
        }
        Type::Type(Some(named)) => Type::of_type(map(named)),
        other => other.clone(),
    }
}

fn is_nullable(named: &Type) -> bool {
    matches!(
        named,
        Type::Null
            | Type::Opaque(..)
            | Type::Struct(_)
            | Type::Any
            | Type::Duration
            | Type::Timestamp
            | Type::Wrapper(_)
    )
}

/// The more general of two types that can stand for each other.
pub(crate) fn most_general<'a>(one: &'a Type, other: &'a Type) -> &'a Type {
    if is_equal_or_less_specific(one, other) { one } else { other }
}

fn is_equal_or_less_specific(one: &Type, other: &Type) -> bool {
    if one.is_dyn() || one.is_parameter() {
        return true;
    }
    if other.is_dyn() || other.is_parameter() {
        return false;
    }
    match (one, other) {
        (Type::Opaque(name, ones), Type::Opaque(other_name, others)) => {
            name == other_name
                && ones.len() == others.len()
                && ones.iter().zip(others.iter()).all(|(one, other)| is_equal_or_less_specific(one, other))
        }
        (Type::List(one), Type::List(other)) => is_equal_or_less_specific(one, other),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            is_equal_or_less_specific(key, other_key) && is_equal_or_less_specific(value, other_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => one.is_exactly(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bound_once_and_grow_more_general() {
        let mut bindings = Bindings::default();
        let variable = bindings.new_variable();
        assert!(bindings.assign(&Type::list(Type::Int), &Type::list(variable.clone())));
        assert_eq!(bindings.substitute(&variable, false), Type::Int);
        assert!(!bindings.assign(&Type::String, &variable));
        assert_eq!(bindings.substitute(&variable, false), Type::Int);
        assert!(bindings.assign(&Type::Dyn, &variable));
        assert_eq!(bindings.substitute(&variable, false), Type::Dyn);
    }

    #[test]
    fn failed_attempts_bind_nothing() {
        let mut bindings = Bindings::default();
        let variable = bindings.new_variable();
        let arguments = [Type::Int, Type::String];
        assert!(!bindings.assign_all(&arguments, &[variable.clone(), variable.clone()]));
        assert_eq!(bindings.substitute(&variable, true), Type::Dyn);
        assert_eq!(bindings.substitute(&variable, false), variable);
    }

    #[test]
    fn a_variable_is_not_part_of_itself() {
        let mut bindings = Bindings::default();
        let variable = bindings.new_variable();
        assert!(!bindings.assign(&Type::list(variable.clone()), &variable));
    }

    #[test]
    fn null_stands_for_objects_and_times_only() {
        let mut bindings = Bindings::default();
        for nullable in [Type::Struct("a".into()), Type::optional(Type::Int), Type::Duration, Type::Timestamp]
        {
            assert!(bindings.assign(&Type::Null, &nullable) && bindings.assign(&nullable, &Type::Null));
        }
        for other in
            [Type::Int, Type::Bool, Type::String, Type::list(Type::Int), Type::map(Type::Int, Type::Int)]
        {
            assert!(!bindings.assign(&Type::Null, &other) && !bindings.assign(&other, &Type::Null));
        }
        assert!(bindings.assign(&Type::Null, &Type::Wrapper(Arc::new(Type::Int))));
    }
}
