//! The parser, after the CEL grammar: expressions become trees, and macros their expansions.

use crate::ast::{Call, Expr, ExprKind, List, Literal, MapEntry, NodeId, Select, Struct, StructField};
use crate::issues::Issues;
use crate::lexer::{Token, TokenKind, tokens};
use crate::macros::{MacroDeclaration, MacroError};
use crate::source::Source;
use crate::stack::on_a_large_stack;
use crate::unescape::unescape;

/// How often one rule of the grammar may be nested in itself.
const NESTING_MAX: usize = 250;
/// Longer expressions are refused.
const CODE_POINTS_MAX: usize = 100_000;

/// Names that variables and functions cannot have.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Operators with the functions they call and how strongly they bind.
const OPERATORS: [(&str, &str, u8); 14] = [
    ("||", "_||_", 1),
    ("&&", "_&&_", 2),
    ("<", "_<_", RELATION),
    ("<=", "_<=_", RELATION),
    (">=", "_>=_", RELATION),
    (">", "_>_", RELATION),
    ("==", "_==_", RELATION),
    ("!=", "_!=_", RELATION),
    ("in", "@in", RELATION),
    ("+", "_+_", 4),
    ("-", "_-_", 4),
    ("*", "_*_", 5),
    ("/", "_/_", 5),
    ("%", "_%_", 5),
];
const RELATION: u8 = 3;

/// What the generated parser expects where an expression begins.
const BEGINNINGS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
    STRING, BYTES, IDENTIFIER}";

/// Parses an expression and expands macros.
///
/// # Errors
/// If it is no expression, or a macro is used wrongly.
pub fn parse(source: &Source, macros: &[MacroDeclaration]) -> Result<Expr, Issues> {
    let mut issues = Issues::default();
    let size = source.chars().len();
    if size > CODE_POINTS_MAX {
        let limit =
            format!("expression code point size exceeds limit: size: {size}, limit {CODE_POINTS_MAX}");
        issues.report_nowhere(limit);
        return Err(issues);
    }
    let tokens = tokens(source.chars(), &mut issues);
    let mut parser = Parser { tokens, at: 0, issues, next_id: 0, macros, nesting: [0; RULES] };
    let parsed = on_a_large_stack(|| parser.start());
    match parsed {
        Ok(expr) if parser.issues.is_empty() => Ok(expr),
        _ => Err(parser.issues),
    }
}

/// The parser stops; the error has been reported.
struct Stop;

type Parsed = Result<Node, Stop>;

/// A part of the tree, and how deep its selections, calls, indexes and operators are nested.
struct Node {
    expr: Expr,
    depth: usize,
}

#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
}
const RULES: usize = Rule::Primary as usize + 1;

pub(crate) struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    issues: Issues,
    next_id: NodeId,
    macros: &'a [MacroDeclaration],
    nesting: [usize; RULES],
}

impl Parser<'_> {
    pub(crate) fn node(&mut self, offset: usize, kind: ExprKind) -> Expr {
        let id = self.next_id;
        self.next_id += 1;
        Expr { id, offset, kind }
    }

    fn start(&mut self) -> Result<Expr, Stop> {
        let node = self.expr()?;
        if self.peek().kind != TokenKind::End {
            let message = format!("extraneous input '{}' expecting <EOF>", self.peek().text);
            return Err(self.syntax_error(&message));
        }
        if node.depth > NESTING_MAX {
            self.issues.report_nowhere("max recursion depth exceeded");
            return Err(Stop);
        }
        Ok(node.expr)
    }

    fn peek(&self) -> &Token {
        self.ahead(0)
    }

    /// The last token is the end, so there is always one.
    fn ahead(&self, count: usize) -> &Token {
        &self.tokens[(self.at + count).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn take(&mut self, text: &str) -> Option<Token> {
        self.peek().is(text).then(|| self.next())
    }

    fn expect(&mut self, text: &str) -> Result<Token, Stop> {
        match self.take(text) {
            Some(token) => Ok(token),
            None => {
                let found = &self.peek().text;
                let message = format!("missing '{text}' at '{found}'");
                Err(self.syntax_error(&message))
            }
        }
    }

    fn syntax_error(&mut self, message: &str) -> Stop {
        let offset = self.peek().offset;
        self.issues.report(offset, format!("Syntax error: {message}"));
        Stop
    }

    fn enter(&mut self, rule: Rule) -> Result<(), Stop> {
        self.nesting[rule as usize] += 1;
        if self.nesting[rule as usize] > NESTING_MAX {
            self.issues.report_nowhere(format!("expression recursion limit exceeded: {NESTING_MAX}"));
            return Err(Stop);
        }
        Ok(())
    }

    fn leave(&mut self, rule: Rule, count: usize) {
        self.nesting[rule as usize] -= count;
    }

    fn expr(&mut self) -> Parsed {
        self.enter(Rule::Expr)?;
        let condition = self.operators(1)?;
        let node = match self.take("?") {
            None => condition,
            Some(operator) => {
                let yes = self.operators(1)?;
                self.expect(":")?;
                let no = self.expr()?;
                let depth = 1 + condition.depth.max(yes.depth).max(no.depth);
                let args = vec![condition.expr, yes.expr, no.expr];
                Node { expr: self.call(operator.offset, "_?_:_", args), depth }
            }
        };
        self.leave(Rule::Expr, 1);
        Ok(node)
    }

    /// Operands and the operators between them that bind at least as strongly as asked for. One function for all levels keeps
    /// the stack small that deeply nested expressions need.
    fn operators(&mut self, least: u8) -> Parsed {
        let rules: &[Rule] = if least <= RELATION { &[Rule::Relation, Rule::Calc] } else { &[Rule::Calc] };
        for rule in rules {
            self.enter(*rule)?;
        }
        let mut left = self.unary()?;
        // As in the grammar, where these rules are left-recursive, each operator nests what is left of it.
        let (mut relations, mut calcs) = (0, 0);
        while let Some((function, level)) = self.operator().filter(|(_, level)| *level >= least) {
            if level <= RELATION {
                self.leave(Rule::Calc, std::mem::take(&mut calcs));
            }
            if level < RELATION {
                self.leave(Rule::Relation, std::mem::take(&mut relations));
                left = self.logical(function, level, left)?;
                continue;
            }
            let (rule, count) =
                if level == RELATION { (Rule::Relation, &mut relations) } else { (Rule::Calc, &mut calcs) };
            *count += 1;
            self.enter(rule)?;
            let offset = self.next().offset;
            let right = self.operators(level + 1)?;
            left = self.binary(offset, function, left, right);
        }
        self.leave(Rule::Calc, calcs);
        self.leave(Rule::Relation, relations);
        for rule in rules {
            self.leave(*rule, 1);
        }
        Ok(left)
    }

    /// The operator that comes next, and how strongly it binds.
    fn operator(&self) -> Option<(&'static str, u8)> {
        let TokenKind::Fixed(text) = self.peek().kind else { return None };
        OPERATORS.iter().find(|(known, ..)| *known == text).map(|(_, function, level)| (*function, *level))
    }

    /// A chain of the same logical operator.
    fn logical(&mut self, function: &'static str, level: u8, first: Node) -> Parsed {
        let (mut depth, mut terms, mut offsets) = (first.depth, vec![Some(first.expr)], Vec::new());
        while self.operator() == Some((function, level)) {
            offsets.push(self.next().offset);
            let term = self.operators(level + 1)?;
            depth = depth.max(term.depth);
            terms.push(Some(term.expr));
        }
        let expr = self.balanced(function, &mut terms, &offsets);
        Ok(Node { expr, depth })
    }

    /// Chains of the same logical operator become a balanced tree.
    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], offsets: &[usize]) -> Expr {
        if let [term] = terms {
            return term.take().unwrap_or_else(|| self.node(0, ExprKind::Unspecified));
        }
        let middle = offsets.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balanced(function, left, &offsets[..middle]);
        let right = self.balanced(function, right, &offsets[middle + 1..]);
        self.call(offsets[middle], function, vec![left, right])
    }

    fn binary(&mut self, offset: usize, function: &str, left: Node, right: Node) -> Node {
        let depth = 1 + left.depth.max(right.depth);
        Node { expr: self.call(offset, function, vec![left.expr, right.expr]), depth }
    }

    fn unary(&mut self) -> Parsed {
        self.enter(Rule::Unary)?;
        let is_number = |token: &Token| matches!(token.kind, TokenKind::Int | TokenKind::Float);
        let operator = if self.peek().is("!") {
            Some(("!", "!_"))
        } else if self.peek().is("-") && !is_number(self.ahead(1)) {
            Some(("-", "-_"))
        } else {
            None
        };
        let node = match operator {
            None => self.member()?,
            Some((text, function)) => {
                let (offset, mut count) = (self.peek().offset, 0);
                while self.take(text).is_some() {
                    count += 1;
                }
                let operand = self.member()?;
                // An even number of them is none.
                if count % 2 == 0 {
                    operand
                } else {
                    let depth = operand.depth;
                    Node { expr: self.call(offset, function, vec![operand.expr]), depth }
                }
            }
        };
        self.leave(Rule::Unary, 1);
        Ok(node)
    }

    fn member(&mut self) -> Parsed {
        self.enter(Rule::Member)?;
        let (mut node, mut entered) = (self.primary()?, 1);
        while self.peek().is(".") || self.peek().is("[") {
            self.enter(Rule::Member)?;
            entered += 1;
            node = if self.peek().is("[") { self.index(node)? } else { self.selection(node)? };
        }
        self.leave(Rule::Member, entered);
        Ok(node)
    }

    fn index(&mut self, operand: Node) -> Parsed {
        let offset = self.next().offset;
        let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
        let index = self.expr()?;
        self.expect("]")?;
        Ok(self.binary(offset, function, operand, index))
    }

    fn selection(&mut self, operand: Node) -> Parsed {
        let offset = self.next().offset;
        let optional = self.take("?").is_some();
        let name = self.next();
        let mut depth = operand.depth;
        let field = match name.kind {
            TokenKind::Identifier if !optional && self.peek().is("(") => {
                let open = self.next().offset;
                let (args, deepest) = self.arguments()?;
                depth = 1 + depth.max(deepest);
                let expr = self.call_or_macro(open, name.text, Some(operand.expr), args);
                return Ok(Node { expr, depth });
            }
            TokenKind::Identifier => name.text,
            TokenKind::QuotedIdentifier => name.text.trim_matches('`').to_owned(),
            _ => {
                self.at -= 1;
                let message = match name.kind {
                    TokenKind::Fixed("true" | "false" | "null") => {
                        format!("mismatched input '{}' expecting IDENTIFIER", name.text)
                    }
                    _ => format!("no viable alternative at input '.{}'", name.text),
                };
                return Err(self.syntax_error(&message));
            }
        };
        depth += 1;
        let expr = if optional {
            let field = self.node(name.offset, ExprKind::Literal(Literal::String(field)));
            self.call(offset, "_?._", vec![operand.expr, field])
        } else {
            let select = Select { operand: operand.expr, field, test_only: false };
            self.node(offset, ExprKind::Select(Box::new(select)))
        };
        Ok(Node { expr, depth })
    }

    /// The arguments behind an opening parenthesis, up to the closing one.
    fn arguments(&mut self) -> Result<(Vec<Expr>, usize), Stop> {
        let (mut args, mut depth) = (Vec::new(), 0);
        if self.take(")").is_some() {
            return Ok((args, depth));
        }
        loop {
            let arg = self.expr()?;
            depth = depth.max(arg.depth);
            args.push(arg.expr);
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok((args, depth))
    }

    fn primary(&mut self) -> Parsed {
        self.enter(Rule::Primary)?;
        let token = self.peek().clone();
        let node = match token.kind {
            TokenKind::Fixed("(") => {
                self.next();
                let inner = self.expr()?;
                self.expect(")")?;
                inner
            }
            TokenKind::Fixed("[") => self.list()?,
            TokenKind::Fixed("{") => self.map()?,
            TokenKind::Fixed(".") | TokenKind::Identifier => self.name()?,
            _ => {
                let literal = self.literal()?;
                Node { expr: self.node(token.offset, literal), depth: 0 }
            }
        };
        self.leave(Rule::Primary, 1);
        Ok(node)
    }

    fn list(&mut self) -> Parsed {
        let (offset, mut list, mut depth) = (self.next().offset, List::default(), 0);
        let mut more = !self.peek().is("]") && !self.peek().is(",");
        while more {
            if self.take("?").is_some() {
                list.optional.push(list.elements.len());
            }
            let element = self.expr()?;
            depth = depth.max(element.depth);
            list.elements.push(element.expr);
            more = self.peek().is(",") && !self.ahead(1).is("]");
            if more {
                self.next();
            }
        }
        self.take(",");
        self.expect("]")?;
        Ok(Node { expr: self.node(offset, ExprKind::List(list)), depth })
    }

    fn map(&mut self) -> Parsed {
        let (offset, mut entries, mut depth) = (self.next().offset, Vec::new(), 0);
        let mut more = !self.peek().is("}") && !self.peek().is(",");
        while more {
            let optional = self.take("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push(MapEntry { key: key.expr, value: value.expr, optional });
            more = self.peek().is(",") && !self.ahead(1).is("}");
            if more {
                self.next();
            }
        }
        self.take(",");
        self.expect("}")?;
        Ok(Node { expr: self.node(offset, ExprKind::Map(entries)), depth })
    }

    /// A variable, a call of a function, or a message.
    fn name(&mut self) -> Parsed {
        let start = self.peek().offset;
        let dot = if self.take(".").is_some() { "." } else { "" };
        if self.peek().kind != TokenKind::Identifier {
            let message = format!("mismatched input '{}' expecting IDENTIFIER", self.peek().text);
            return Err(self.syntax_error(&message));
        }
        if let Some(parts) = self.parts_of_message_name() {
            return self.message(dot, parts);
        }
        let token = self.next();
        let reserved = RESERVED.contains(&token.text.as_str());
        let open = self.take("(");
        let called = match &open {
            None => None,
            Some(open) => Some((open.offset, self.arguments()?)),
        };
        if reserved {
            self.issues.report(start, format!("reserved identifier: {}", token.text));
            return Ok(Node { expr: self.node(start, ExprKind::Unspecified), depth: 0 });
        }
        let name = format!("{dot}{}", token.text);
        Ok(match called {
            None => Node { expr: self.node(token.offset, ExprKind::Ident(name)), depth: 0 },
            Some((offset, (args, depth))) => {
                Node { expr: self.call_or_macro(offset, name, None, args), depth }
            }
        })
    }

    /// How many identifiers, with dots between them, there are before an opening brace.
    fn parts_of_message_name(&self) -> Option<usize> {
        let mut parts = 1;
        while self.ahead(2 * parts - 1).is(".") && self.ahead(2 * parts).kind == TokenKind::Identifier {
            parts += 1;
        }
        self.ahead(2 * parts - 1).is("{").then_some(parts)
    }

    fn message(&mut self, dot: &str, parts: usize) -> Parsed {
        let names: String = (0..2 * parts - 1).map(|_| self.next().text).collect();
        let type_name = format!("{dot}{names}");
        let (offset, mut fields, mut depth) = (self.next().offset, Vec::new(), 0);
        let mut more = !self.peek().is("}") && !self.peek().is(",");
        while more {
            let optional = self.take("?").is_some();
            let name = match self.peek().kind {
                TokenKind::Identifier => self.next().text,
                TokenKind::QuotedIdentifier => self.next().text.trim_matches('`').to_owned(),
                _ => {
                    let found = &self.peek().text;
                    let message =
                        format!("mismatched input '{found}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}");
                    return Err(self.syntax_error(&message));
                }
            };
            let offset = self.expect(":")?.offset;
            let value = self.expr()?;
            depth = depth.max(value.depth);
            fields.push(StructField { offset, name, value: value.expr, optional });
            more = self.peek().is(",") && !self.ahead(1).is("}");
            if more {
                self.next();
            }
        }
        self.take(",");
        self.expect("}")?;
        Ok(Node { expr: self.node(offset, ExprKind::Struct(Struct { type_name, fields })), depth })
    }

    fn literal(&mut self) -> Result<ExprKind, Stop> {
        let start = self.peek().offset;
        let sign = if self.take("-").is_some() { "-" } else { "" };
        let token = self.next();
        let wrong = |parser: &mut Self, message: &str| {
            parser.issues.report(start, message);
            ExprKind::Unspecified
        };
        let text = token.text.as_str();
        if !sign.is_empty() && !matches!(token.kind, TokenKind::Int | TokenKind::Float) {
            // Only `!` leads here: an operand of `-` has no sign of its own.
            self.at -= 1;
            return Err(self.syntax_error(&format!("no viable alternative at input '-{text}'")));
        }
        Ok(match token.kind {
            TokenKind::Int => match integer(text, sign, i64::from_str_radix) {
                Some(value) => ExprKind::Literal(Literal::Int(value)),
                None => wrong(self, "invalid int literal"),
            },
            TokenKind::Uint => match integer(&text[..text.len() - 1], "", u64::from_str_radix) {
                Some(value) => ExprKind::Literal(Literal::Uint(value)),
                None => wrong(self, "invalid uint literal"),
            },
            TokenKind::Float => match format!("{sign}{text}").parse::<f64>() {
                Ok(value) if value.is_finite() => ExprKind::Literal(Literal::Double(value)),
                _ => wrong(self, "invalid double literal"),
            },
            TokenKind::String => match unescape(text, false) {
                Ok(value) => ExprKind::Literal(Literal::String(String::from_utf8_lossy(&value).into_owned())),
                Err(message) => wrong(self, message),
            },
            TokenKind::Bytes => match unescape(&text[1..], true) {
                Ok(value) => ExprKind::Literal(Literal::Bytes(value)),
                Err(message) => wrong(self, message),
            },
            TokenKind::Fixed("true") => ExprKind::Literal(Literal::Bool(true)),
            TokenKind::Fixed("false") => ExprKind::Literal(Literal::Bool(false)),
            TokenKind::Fixed("null") => ExprKind::Literal(Literal::Null),
            _ => {
                self.at -= 1;
                let message = format!("mismatched input '{text}' expecting {BEGINNINGS}");
                return Err(self.syntax_error(&message));
            }
        })
    }

    pub(crate) fn call(&mut self, offset: usize, function: &str, args: Vec<Expr>) -> Expr {
        let call = Call { function: function.to_owned(), target: None, args };
        self.node(offset, ExprKind::Call(Box::new(call)))
    }

    fn call_or_macro(
        &mut self,
        offset: usize,
        function: String,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Expr {
        let call = Call { function, target, args };
        let fits = |one: &&MacroDeclaration| {
            one.function == call.function
                && one.arguments == call.args.len()
                && one.is_receiver == call.target.is_some()
        };
        let Some(declared) = self.macros.iter().find(fits).copied() else {
            return self.node(offset, ExprKind::Call(Box::new(call)));
        };
        match declared.expand(self, offset, call) {
            Ok(expr) => expr,
            Err(MacroError::NotThisMacro(call)) => self.node(offset, ExprKind::Call(call)),
            Err(MacroError::Wrong { offset, message }) => {
                self.issues.report(offset, message);
                self.node(offset, ExprKind::Unspecified)
            }
        }
    }
}

fn integer<N>(
    text: &str,
    sign: &str,
    parse: fn(&str, u32) -> Result<N, std::num::ParseIntError>,
) -> Option<N> {
    match text.strip_prefix("0x") {
        Some(digits) => parse(&format!("{sign}{digits}"), 16).ok(),
        None => parse(&format!("{sign}{text}"), 10).ok(),
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
