//! A Rust source file as the checks see it: its functions with their size, docs and test attributes.

use std::ops::RangeInclusive;

use anyhow::{Result, anyhow};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ImplItemFn, Item, ItemFn, Lit, Meta, Signature, TraitItemFn};

/// A parsed source file.
#[derive(Debug)]
pub struct Source {
    /// Every function, methods and nested functions included, in the order of the file.
    pub functions: Vec<Function>,
    /// Lines of code outside of test modules; blank lines and comments do not count.
    pub code_lines: usize,
    /// Lines of code inside `#[cfg(test)]` modules of this file.
    pub test_lines: usize,
}

/// One function with a body.
#[derive(Debug)]
pub struct Function {
    /// Its name, without the type it belongs to.
    pub name: String,
    /// The line of its `fn`.
    pub line: usize,
    /// Physical lines from `fn` to the closing brace.
    pub lines: usize,
    /// Its doc comment, line by line, each with its line number.
    pub docs: Vec<(usize, String)>,
    /// Whether a test runner calls it (`#[test]`, `#[tokio::test]`).
    pub is_test: bool,
    /// Whether the test runner skips it.
    pub is_ignored: bool,
}

impl Source {
    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self> {
        let file =
            syn::parse_file(text).map_err(|error| anyhow!("line {}: {error}", error.span().start().line))?;
        let mut collector = Collector::default();
        collector.visit_file(&file);
        let test_modules: Vec<_> = file.items.iter().filter_map(test_module_lines).collect();
        let (mut code_lines, mut test_lines) = (0, 0);
        for (index, line) in text.lines().enumerate() {
            if is_code(line) {
                let in_tests = test_modules.iter().any(|range| range.contains(&(index + 1)));
                *(if in_tests { &mut test_lines } else { &mut code_lines }) += 1;
            }
        }
        Ok(Self { functions: collector.functions, code_lines, test_lines })
    }
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

/// The lines of an inline module that exists only for tests.
fn test_module_lines(item: &Item) -> Option<RangeInclusive<usize>> {
    let Item::Mod(module) = item else { return None };
    let (brace, _) = module.content.as_ref()?;
    let test_only = module.attrs.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    });
    test_only.then(|| module.mod_token.span.start().line..=brace.span.close().end().line)
}

#[derive(Default)]
struct Collector {
    functions: Vec<Function>,
}

impl Collector {
    fn push(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let last_segment_is = |attribute: &Attribute, name: &str| {
            attribute.path().segments.last().is_some_and(|segment| segment.ident == name)
        };
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line: first,
            lines: last - first + 1,
            docs: attributes.iter().filter_map(doc_line).collect(),
            is_test: attributes.iter().any(|attribute| last_segment_is(attribute, "test")),
            is_ignored: attributes.iter().any(|attribute| last_segment_is(attribute, "ignore")),
        });
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.push(&function.attrs, &function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.push(&function.attrs, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.push(&function.attrs, &function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

fn doc_line(attribute: &Attribute) -> Option<(usize, String)> {
    let Meta::NameValue(doc) = &attribute.meta else {
        return None;
    };
    if !doc.path.is_ident("doc") {
        return None;
    }
    let Expr::Lit(literal) = &doc.value else {
        return None;
    };
    let Lit::Str(text) = &literal.lit else { return None };
    Some((attribute.pound_token.span.start().line, text.value().trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "//! Header.\n\n/// Says hello.\npub async fn hello() {\n    // why\n    wave();\n}\n\n\
        #[cfg(test)]\nmod tests {\n    /// Checks.\n    #[tokio::test]\n    async fn greets() {\n    }\n\n    \
        #[test]\n    #[ignore]\n    fn sleeps() {}\n}\n";

    #[test]
    fn functions_carry_size_docs_and_test_attributes() {
        let source = Source::parse(SAMPLE).unwrap();
        let shown: Vec<_> = source
            .functions
            .iter()
            .map(|function| (function.name.as_str(), function.line, function.lines, function.is_test))
            .collect();
        assert_eq!(shown, [("hello", 4, 4, false), ("greets", 13, 2, true), ("sleeps", 18, 1, true)]);
        assert_eq!(source.functions[0].docs, [(3, "Says hello.".to_owned())]);
        assert!(source.functions[2].is_ignored);
    }

    #[test]
    fn comments_and_blank_lines_are_not_code_and_tests_are_counted_apart() {
        let source = Source::parse(SAMPLE).unwrap();
        assert_eq!((source.code_lines, source.test_lines), (4, 8));
    }

    #[test]
    fn a_file_that_does_not_parse_names_the_line() {
        let error = Source::parse("fn a() {}\nfn fn\n").unwrap_err();
        assert!(error.to_string().starts_with("line 2: "), "{error}");
    }
}
