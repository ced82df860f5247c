//! Room for recursion: expressions come from users, and a stack that overflows ends the process.

/// Several times what an expression at the limits of the grammar needs when nothing is optimised, which is just below 3 MiB.
/// The pages are only reserved until they are used.
const STACK_BYTES: usize = 16 << 20;
/// With less than this left, a new stack is reserved. Above it, the caller is already on a large one.
const ENOUGH_BYTES: usize = 8 << 20;

/// Runs something that recurses along the nesting of an expression.
pub(crate) fn on_a_large_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(ENOUGH_BYTES, STACK_BYTES, work)
}

#[cfg(test)]
mod tests {
    use crate::kubernetes::environment;
    use crate::{Source, Type};

    /// As small as stacks of threads get.
    const SMALL_STACK: usize = 256 << 10;

    /// Expressions that are nested as deeply as each construct of the language allows.
    fn nested() -> Vec<String> {
        let around = |before: &str, after: &str, depth: usize| {
            format!("{}d{}", before.repeat(depth), after.repeat(depth))
        };
        let depths = [120, 245, 249, 250, 400];
        let constructs = [
            ("(", ")"),
            ("[", "]"),
            ("{'a': ", "}"),
            ("d[", "]"),
            ("size(", ")"),
            ("d.f(", ")"),
            ("!(", ")"),
            ("-(", ")"),
            ("d ? d : (", ")"),
            ("d ? (", ") : d"),
            ("d || (", ")"),
            ("d + (", ")"),
            ("d == (", ")"),
            ("[d].all(x, ", ")"),
            ("[d].map(x, x, ", ")"),
            ("{d: d}.transformMap(k, v, ", ")"),
            ("cel.bind(x, d, ", ")"),
            ("optional.of(", ")"),
            ("d.?a.orValue(", ")"),
        ];
        let all =
            constructs.iter().flat_map(|(before, after)| depths.map(|depth| around(before, after, depth)));
        let long = ["d.a", "d[0]", "d.f()", "d || d", "d + d", "!d"].map(|part| {
            let (first, rest) = part.split_at(1);
            if first == "!" { "!".repeat(90_000) + "d" } else { first.to_owned() + &rest.repeat(12_000) }
        });
        all.chain(long).collect()
    }

    fn compile_all() -> usize {
        let mut environment = environment();
        environment.add_variable("d", Type::Dyn);
        nested().iter().filter(|text| environment.compile(&Source::new(text)).is_ok()).count()
    }

    #[test]
    fn deeply_nested_expressions_do_not_overflow_a_small_stack() {
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(compile_all);
        assert!(thread.unwrap().join().unwrap() > 0, "some of them are within the limits");
    }
}
