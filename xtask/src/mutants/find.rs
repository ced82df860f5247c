//! Finds what can be changed in a source file.

use std::ops::Range;

use anyhow::{Result, anyhow};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprUnary, GenericArgument, ImplItemFn, Item, ItemConst, ItemFn, ItemMod,
    ItemStatic, PathArguments, ReturnType, Signature, Type, UnOp,
};

use super::{Change, Mutant};

/// The mutants of a file, in its order.
pub(super) fn mutants_of(file: &str, text: &str) -> Result<Vec<Mutant>> {
    let parsed = syn::parse_file(text).map_err(|error| anyhow!("{file}: {error}"))?;
    let mut finder = Finder { file, mutants: Vec::new() };
    finder.visit_file(&parsed);
    Ok(finder.mutants)
}

struct Finder<'a> {
    file: &'a str,
    mutants: Vec<Mutant>,
}

impl Finder<'_> {
    fn add(&mut self, line: usize, range: Range<usize>, change: Change) {
        self.mutants.push(Mutant { file: self.file.to_owned(), line, range, change });
    }

    fn add_bodies(&mut self, signature: &Signature, block: &Block) {
        for value in values_of(&signature.output) {
            let function = signature.ident.to_string();
            let line = signature.ident.span().start().line;
            self.add(line, block.span().byte_range(), Change::Body { function, value });
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"));
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, _: &'ast ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_item(&mut self, item: &'ast Item) {
        // How values look in logs is no behaviour.
        let is_debug = matches!(item, Item::Impl(item) if item.trait_.as_ref().is_some_and(|(path, ..)| {
            path.segments.last().is_some_and(|segment| segment.ident == "Debug")
        }));
        if !is_debug {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.sig.constness.is_none() && function.attrs.iter().all(|one| !one.path().is_ident("cfg")) {
            self.add_bodies(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if function.sig.constness.is_none() && function.attrs.iter().all(|one| !one.path().is_ident("cfg")) {
            self.add_bodies(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let (left, right) = (&*binary.left, &*binary.right);
        if let Some((from, to)) = other_operator(&binary.op)
            && !contains_let(left)
            && !contains_let(right)
        {
            let ranges = (left.span().byte_range(), right.span().byte_range());
            let change = Change::Operator { left: ranges.0, right: ranges.1, from, to };
            self.add(binary.op.span().start().line, binary.span().byte_range(), change);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        if matches!(unary.op, UnOp::Not(_)) {
            let change = Change::Not { operand: unary.expr.span().byte_range() };
            self.add(unary.span().start().line, unary.span().byte_range(), change);
        }
        visit::visit_expr_unary(self, unary);
    }
}

/// A condition with `let` is no expression of its own.
fn contains_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

fn other_operator(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::And(_) => ("&&", "||"),
        BinOp::Or(_) => ("||", "&&"),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        _ => return None,
    })
}

/// What a function of this type can return at once.
fn values_of(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, result) = output else { return &[""] };
    let Type::Path(path) = &**result else { return &[] };
    let Some(last) = path.path.segments.last() else { return &[] };
    match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "Option" => &["None"],
        "Vec" => &["Vec::new()"],
        "String" => &["String::new()"],
        "u32" | "u64" | "usize" | "i32" | "i64" => &["0", "1"],
        "Result" if is_unit(&last.arguments) => &["Ok(())"],
        _ => &[],
    }
}

/// Whether the first argument of a `Result` is `()`.
fn is_unit(arguments: &PathArguments) -> bool {
    let PathArguments::AngleBracketed(arguments) = arguments else { return false };
    matches!(arguments.args.first(), Some(GenericArgument::Type(Type::Tuple(tuple))) if tuple.elems.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_bodies_outside_of_tests_and_constants_are_found() {
        let text = "const A: bool = 1 == 2;\n\
                    fn f(a: u8) -> bool { a < 2 && !(a == 1) }\n\
                    fn g() { if let Some(_) = None::<u8> && true { } }\n\
                    #[cfg(test)]\nmod tests { fn h() {} }\n";
        let found: Vec<_> = mutants_of("a.rs", text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a.rs:2: f returns true",
                "a.rs:2: f returns false",
                "a.rs:2: replace && by ||",
                "a.rs:2: replace < by <=",
                "a.rs:2: delete !",
                "a.rs:2: replace == by !=",
                "a.rs:3: g does nothing",
            ]
        );
    }
}
