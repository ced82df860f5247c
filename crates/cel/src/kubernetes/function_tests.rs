//! The functions of all libraries: which types they take and give.

use super::*;

/// The type of an expression, or the message of its first error.
fn of(text: &str) -> String {
    let mut environment = environment();
    for (name, of) in [
        ("b", Type::Bool),
        ("i", Type::Int),
        ("u", Type::Uint),
        ("f", Type::Double),
        ("s", Type::String),
        ("y", Type::Bytes),
        ("t", Type::Timestamp),
        ("w", Type::Duration),
        ("d", Type::Dyn),
        ("li", Type::list(Type::Int)),
        ("ls", Type::list(Type::String)),
        ("m", Type::map(Type::String, Type::Int)),
        ("o", Type::optional(Type::Int)),
        ("a", Type::Struct("kubernetes.authorization.Authorizer".into())),
        ("r", Type::Struct(REQUEST.into())),
    ] {
        environment.add_variable(name, of);
    }
    let source = Source::new(text);
    match environment.compile(&source) {
        Ok(checked) => checked.output_type().to_string(),
        Err(issues) => issues.list()[0].message.clone(),
    }
}

fn give(expected: &str, expressions: &[&str]) {
    for text in expressions {
        assert_eq!(of(text), expected, "{text}");
    }
}

fn fail(expressions: &[&str]) {
    for text in expressions {
        assert!(of(text).starts_with("found no matching overload for "), "{text}: {}", of(text));
    }
}

/// Proves VAPS-86.
#[test]
fn operators_take_the_types_of_the_standard_library() {
    give(
        "bool",
        &["b ? b : b", "!b", "b && b || b", "i == 1", "s != ''", "i < 1u", "u >= 1.5", "f > 1", "t <= t"],
    );
    give("bool", &["w < w", "y < y", "b < b", "1 in li", "'a' in m", "s in ls"]);
    give("int", &["i + 1", "i - 1", "i * 2", "i / 2", "i % 2", "-i", "li[0]", "m['a']"]);
    give("uint", &["u + 1u", "u % 2u"]);
    give("double", &["f + 1.0", "-f"]);
    give("timestamp", &["t + w", "w + t", "t - w"]);
    give("duration", &["w + w", "w - w", "t - t"]);
    give("list(int)", &["li + li"]);
    give("bytes", &["y + y"]);
    fail(&[
        "i + 1.0", "i == 1.0", "-u", "f % 2.0", "t + t", "s - s", "1 in ls", "li['a']", "m[1]", "b + b", "!i",
    ]);
}

/// Proves VAPS-87.
#[test]
fn standard_functions_convert_and_measure() {
    give(
        "int",
        &["size(s)", "s.size()", "size(y)", "li.size()", "m.size()", "int(f)", "int(w)", "int(t)", "int(u)"],
    );
    give(
        "int",
        &["t.getFullYear()", "t.getHours('UTC')", "w.getHours()", "w.getMilliseconds()", "t.getDate()"],
    );
    give("string", &["string(i)", "string(b)", "string(y)", "string(t)", "string(w)", "string(ip('::1'))"]);
    give("dyn", &["dyn(i)"]);
    give("type(int)", &["type(i)"]);
    give(
        "bool",
        &["bool('true')", "s.contains('a')", "s.startsWith('a')", "s.endsWith('a')", "s.matches('a')"],
    );
    give("bool", &["matches(s, 'a')"]);
    give("double", &["double(i)", "double('1')"]);
    give("uint", &["uint(i)"]);
    give("timestamp", &["timestamp(1)", "timestamp(s)"]);
    give("duration", &["duration(s)"]);
    give("bytes", &["bytes(s)"]);
    fail(&[
        "size(i)",
        "bool(i)",
        "string(li)",
        "w.getHours('UTC')",
        "w.getFullYear()",
        "timestamp(f)",
        "uint(t)",
    ]);
}

/// Proves VAPS-88.
#[test]
fn macros_are_those_of_kubernetes() {
    give("bool", &["has(m.a)", "li.all(x, x > 0)", "li.exists(x, x > 0)", "li.exists_one(x, x > 0)"]);
    give(
        "bool",
        &[
            "li.all(i, x, x > i)",
            "m.exists(k, v, v > 0)",
            "li.existsOne(i, x, x > i)",
            "m.exists_one(k, v, true)",
        ],
    );
    give(
        "list(string)",
        &["li.map(x, string(x))", "li.map(x, x > 0, string(x))", "m.transformList(k, v, k)"],
    );
    give("list(int)", &["li.filter(x, x > 0)", "li.transformList(i, x, x > 0, i)", "li.sortBy(x, -x)"]);
    give("map(string, string)", &["m.transformMap(k, v, string(v))", "m.transformMap(k, v, v > 0, k)"]);
    give("map(int, string)", &["m.transformMapEntry(k, v, {v: k})"]);
    give("optional_type(string)", &["o.optMap(x, string(x))", "o.optFlatMap(x, optional.of(string(x)))"]);
    give("undeclared reference to 'x' (in container '')", &["li.existsOne(x, true || x)"]);
}

/// Proves VAPS-89.
#[test]
fn optional_values_wrap_and_unwrap() {
    give(
        "optional_type(int)",
        &["m.?a", "m[?'a']", "li[?0]", "optional.of(1)", "optional.ofNonZeroValue(i)"],
    );
    give(
        "optional_type(int)",
        &["o.or(optional.none())", "li.first()", "li.last()", "optional.of(li)[0]", "optional.of(m).a"],
    );
    give("bool", &["o.hasValue()"]);
    give("int", &["o.value()", "o.orValue(1)"]);
    give("list(int)", &["optional.unwrap([o])", "[o].unwrapOpt()"]);
    give("optional_type(dyn)", &["optional.none()"]);
    fail(&["o.orValue('a')", "i.hasValue()", "o.or(1)", "li[?'a']"]);
}

/// Proves VAPS-90.
#[test]
fn strings_and_sets_are_those_of_cel_go() {
    give(
        "string",
        &["s.charAt(0)", "s.lowerAscii()", "s.upperAscii()", "s.replace('a', 'b')", "s.replace('a', 'b', 1)"],
    );
    give(
        "string",
        &[
            "s.substring(1)",
            "s.substring(1, 2)",
            "s.trim()",
            "'%s'.format([i])",
            "strings.quote(s)",
            "ls.join()",
        ],
    );
    give("string", &["ls.join(',')"]);
    give("int", &["s.indexOf('a')", "s.indexOf('a', 1)", "s.lastIndexOf('a', 1)"]);
    give("list(string)", &["s.split(',')", "s.split(',', 2)"]);
    give("bool", &["sets.contains(li, [1])", "sets.equivalent(ls, [])", "sets.intersects(ls, ls)"]);
    fail(&["s.charAt('a')", "li.join()", "sets.contains(li, ls)", "s.reverse()"]);
}

/// Proves VAPS-91.
#[test]
fn lists_sort_sum_and_slice() {
    give("bool", &["li.isSorted()", "ls.isSorted()", "li.includes(1)", "d.includes(d)"]);
    give("int", &["li.min()", "li.max()", "li.sum()", "ls.indexOf('a')", "li.lastIndexOf(1)"]);
    give(
        "list(int)",
        &["li.slice(0, 1)", "[li].flatten()", "li.sort()", "lists.range(3)", "li.reverse()", "li.distinct()"],
    );
    give("list(dyn)", &["[[li]].flatten(2)"]);
    give("string", &["ls.max()"]);
    fail(&["ls.sum()", "li.slice(1)", "li.flatten()", "m.sort()", "li.indexOf('a')"]);
}

/// Proves VAPS-92.
#[test]
fn urls_patterns_and_authorization_have_functions() {
    give("kubernetes.URL", &["url(s)"]);
    give(
        "bool",
        &[
            "isURL(s)",
            "a.path('/x').check('get').allowed()",
            "a.group('').resource('pods').check('get').errored()",
        ],
    );
    give(
        "string",
        &[
            "url(s).getScheme()",
            "url(s).getHost()",
            "url(s).getHostname()",
            "url(s).getPort()",
            "s.find('a')",
        ],
    );
    give(
        "string",
        &["url(s).getEscapedPath()", "a.path('/').check('get').reason()", "a.path('/').check('get').error()"],
    );
    give("map(string, list(string))", &["url(s).getQuery()"]);
    give("list(string)", &["s.findAll('a')", "s.findAll('a', 1)"]);
    give(
        "kubernetes.authorization.ResourceCheck",
        &["a.serviceAccount('n', 's').group('').resource('pods').subresource('log').namespace('n').name('p')
            .fieldSelector('f').labelSelector('l')"],
    );
    fail(&["a.check('get')", "a.path(1)", "a.group('').check('get')", "i.find('a')"]);
}

/// Proves VAPS-93.
#[test]
fn quantities_and_versions_compare() {
    give("kubernetes.Quantity", &["quantity(s)", "quantity(s).add(1)", "quantity(s).sub(quantity('1'))"]);
    give("kubernetes.Semver", &["semver(s)", "semver(s, true)"]);
    give(
        "bool",
        &[
            "isQuantity(s)",
            "quantity(s).isGreaterThan(quantity('1'))",
            "quantity(s).isInteger()",
            "isSemver(s, true)",
        ],
    );
    give("bool", &["semver(s).isLessThan(semver('1.0.0'))"]);
    give(
        "int",
        &[
            "sign(quantity(s))",
            "quantity(s).compareTo(quantity('1'))",
            "quantity(s).asInteger()",
            "semver(s).major()",
        ],
    );
    give("double", &["quantity(s).asApproximateFloat()"]);
    fail(&[
        "quantity(s).sign()",
        "quantity(s).add(1.5)",
        "semver(s).isLessThan(quantity('1'))",
        "quantity(1)",
    ]);
}

/// Proves VAPS-94.
#[test]
fn addresses_and_formats_have_types() {
    give("net.IP", &["ip(s)", "cidr(s).ip()"]);
    give("net.CIDR", &["cidr(s)", "cidr(s).masked()"]);
    give(
        "bool",
        &["isIP(s)", "ip.isCanonical(s)", "ip(s).isLoopback()", "isCIDR(s)", "cidr(s).containsIP(ip(s))"],
    );
    give("bool", &["cidr(s).containsIP(s)", "cidr(s).containsCIDR(s)", "cidr(s).containsCIDR(cidr(s))"]);
    give("int", &["ip(s).family()", "cidr(s).prefixLength()"]);
    give("optional_type(kubernetes.NamedFormat)", &["format.named('uri')"]);
    give("kubernetes.NamedFormat", &["format.uri()", "format.dns1123LabelPrefix()", "format.datetime()"]);
    give("optional_type(list(string))", &["format.uuid().validate(s)"]);
    fail(&["ip(s).prefixLength()", "cidr(s).containsIP(1)", "format.uri(1)", "format.uri().validate(1)"]);
}

/// Proves VAPS-35, VAPS-95.
#[test]
fn names_of_types_are_values() {
    give("type(int)", &["int", "google.protobuf.Timestamp == timestamp ? int : int"]);
    give("type(duration)", &["duration", "google.protobuf.Duration"]);
    give("type(list(dyn))", &["list"]);
    give("type(null)", &["null_type"]);
    give("type(net.IP)", &["net.IP"]);
    give("type(optional_type(dyn))", &["optional_type"]);
    give("type(kubernetes.UserInfo)", &["kubernetes.UserInfo"]);
    give("undeclared reference to 'dyn' (in container '')", &["dyn"]);
    give("undeclared reference to 'kubernetes' (in container '')", &["kubernetes.Quantity"]);
    for missing in ["cel.bind(x, 1, x)", "math.greatest(1, 2)", "base64.encode(y)", "jsonPatch.escape(s)"] {
        assert!(of(missing).starts_with("undeclared reference to "), "{missing}: {}", of(missing));
    }
}

/// Proves VAPS-96, VAPS-97, VAPS-99, VAPS-100.
#[test]
fn types_unify_and_one_mistake_gives_one_message() {
    give("undeclared reference to 'nope' (in container '')", &["nope + 1"]);
    give("int", &["d + 1"]);
    give(
        "bool",
        &["d == 1 && 'a' == d", "[d] == [1]", "type(i) == type(s)", "optional.of(d) == optional.of(1)"],
    );
    give("dyn", &["d + d", "true ? d : 1"]);
    fail(&["optional.of(1) == optional.of('a')", "[1] == ['a']", "{'a': 1} == {'a': 'b'}"]);
    give("found no matching overload for '_+_' applied to '(list(dyn), int)'", &["[] + 1"]);
    give("found no matching overload for 'size' applied to 'string.(int)'", &["s.size(1)"]);
    give("expected type 'bool' but found 'int'", &["i && b", "b || i"]);
    give("undeclared reference to 'unknown' (in container '')", &["unknown(1)", "s.unknown()"]);
}

/// Proves VAPS-98.
#[test]
fn null_equals_objects_and_times_only() {
    give(
        "bool",
        &["r == null", "null == t", "w != null", "ip(s) == null", "o == null", "d == null", "null == null"],
    );
    give("found no matching overload for '_==_' applied to '(int, null)'", &["i == null"]);
    give("found no matching overload for '_==_' applied to '(map(string, int), null)'", &["m == null"]);
    fail(&["s == null", "null == b", "li == null", "f == null", "u == null", "y == null"]);
}

/// Proves VAPS-101, VAPS-102, VAPS-103.
#[test]
fn selections_and_comprehensions_give_parts() {
    give("int", &["m.a"]);
    give("dyn", &["d.a.b"]);
    give("undefined field 'nope'", &["r.nope"]);
    give("type 'int' does not support field selection", &["i.a"]);
    give("unexpected failed resolution of 'kubernetes.Quantity'", &["quantity(s).a"]);
    give("list(int)", &["li.map(i, i)", "m.map(k, m[k])", "li.transformList(s, x, s)"]);
    give("list(dyn)", &["d.map(x, x)", "[].map(x, x)"]);
    give("expected type 'bool' but found 'int'", &["li.all(x, x)", "li.exists(x, x)"]);
    give("found no matching overload for '_?_:_' applied to '(int, int, int)'", &["li.exists_one(x, x)"]);
    let range = "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)";
    give(range, &["i.all(x, true)", "i.transformList(x, y, x)"]);
    give("expected type 'int' but found 'string'", &["[1, 'a']", "{'a': 1, 'b': 'c'}", "[1, 'a'].map(x, x)"]);
}

/// Proves VAPS-105, VAPS-106, VAPS-107.
#[test]
fn literals_are_validated_after_the_types() {
    give("invalid duration argument", &["duration('1d')", "duration('')"]);
    give("invalid timestamp argument", &["timestamp('2024')", "timestamp(253402300800)"]);
    give("invalid matches argument", &["s.matches('(')", "matches('(', s)"]);
    give("bool", &["matches(s, '(')", "s.matches(s + '(')"]);
    give(
        "string",
        &[
            "'%s %s'.format([1, 'a'])",
            "'%d%o%b%x%X%f%e'.format([1, 1u, true, y, s, 1.5, 'NaN'])",
            "'%%'.format([])",
        ],
    );
    give("string", &["'%d'.format([d])", "'%s'.format([[1, t, w, type(1), null]])", "'%.2f'.format([f])"]);
    let was_given = |text: &str, given: &str| {
        let found = of(text);
        assert!(
            found.starts_with("error during formatting: ")
                && found.ends_with(&format!(", was given {given}")),
            "{text}: {found}"
        );
    };
    was_given("'%d'.format([t])", "google.protobuf.Timestamp");
    was_given("'%o'.format([1.5])", "double");
    was_given("'%b'.format(['a'])", "string");
    was_given("'%x'.format([1.5])", "double");
    was_given("'%f'.format([1])", "int");
    was_given("'%e'.format([w])", "google.protobuf.Duration");
    was_given("'%s'.format([r])", REQUEST);
    was_given("'%s'.format([[1, o]])", "optional_type");
    give("index 1 out of range", &["'%s %s'.format([1])"]);
    give("too many arguments supplied to string.format (expected 1, got 2)", &["'%s'.format([1, 2])"]);
    give("unexpected end of string", &["'%'.format([1])"]);
    give("could not parse formatting clause: unrecognized formatting clause \"q\"", &["'%q'.format([1])"]);
}

/// Proves VAPS-49, VAPS-50, VAPS-104.
#[test]
fn messages_name_operators_and_types_as_cel_go_does() {
    let operators = [
        ("i > s", "_>_"),
        ("i >= s", "_>=_"),
        ("i < s", "_<_"),
        ("i <= s", "_<=_"),
        ("i == s", "_==_"),
        ("i != s", "_!=_"),
        ("i + s", "_+_"),
        ("i - s", "_-_"),
        ("i * s", "_*_"),
        ("i / s", "_/_"),
        ("i % s", "_%_"),
        ("i[s]", "_[_]"),
        ("i[?s]", "_[?_]"),
        ("i in s", "@in"),
    ];
    for (text, operator) in operators {
        let expected = format!("found no matching overload for '{operator}' applied to '(int, string)'");
        assert_eq!(of(text), expected);
    }
    give("found no matching overload for '-_' applied to '(string)'", &["-s"]);
    give("found no matching overload for '!_' applied to '(string)'", &["!s"]);
    give("found no matching overload for '_?_:_' applied to '(bool, int, string)'", &["b ? i : s"]);
    give("found no matching overload for 'min' applied to 'string.()'", &["s.min()"]);
    let all = "(bool, int, uint, double, string, bytes, null, dyn, timestamp, duration, list(int), map(string, int), \
               optional_type(int), type(int), kubernetes.AdmissionRequest, net.IP)";
    let call = "sign(b, i, u, f, s, y, null, d, t, w, li, m, o, int, r, ip(s))";
    give(&format!("found no matching overload for 'sign' applied to '{all}'"), &[call]);
    give("'string' is not a message type", &["string{}"]);
    give(
        "expected type of field 'uid' is 'string' but provided type is 'int'",
        &["kubernetes.UserInfo{uid: 1}"],
    );
    give("invalid argument to has() macro", &["has(i)"]);
    give("argument must be a simple name", &["li.all(x.y, true)"]);
    give("argument is not an identifier", &["li.map(1, true)"]);
    give("iteration variable overwrites accumulator variable", &["li.map(__result__, true)"]);
    give("reserved identifier: if", &["if + 1"]);
}

/// Proves VAPS-108, VAPS-109.
#[test]
fn errors_are_placed_where_cel_go_places_them() {
    let place = |text: &str| {
        let source = Source::new(text);
        let issues = environment().compile(&source).unwrap_err();
        source.location(issues.list()[0].offset.unwrap()).column + 1
    };
    for (text, column) in [
        ("1  + 'a'", 4),
        ("   -'a'", 4),
        ("true  ? 1 : 'a'", 7),
        ("'a'  .b", 6),
        ("'a' .?b", 5),
        ("[1] ['a']", 5),
        ("size (1)", 6),
        ("'a'.size (1)", 10),
        ("1 in  ((nope))", 9),
        ("[1,   'a']", 7),
        ("kubernetes.UserInfo{uid : 1}", 25),
        ("[1].filter (x, 1)", 12),
        ("2 == (((1 == 'a')))", 11),
        ("in", 1),
        ("for", 1),
    ] {
        assert_eq!(place(text), column, "{text}");
    }
}
