//! Random pod templates that together use every field of the table.

use keleustes_objects::template::{Field, Shape, Struct, pod_template_fields};
use serde_json::{Map, Value, json};

/// Generates templates from a seed.
pub struct Generator {
    rng: fastrand::Rng,
    /// For every field of the table the fields that lead to it.
    paths: Vec<Vec<usize>>,
}

/// How likely a field is set, by depth, in percent.
const SET: [u8; 4] = [100, 30, 22, 25];

impl Generator {
    /// A generator that begins with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut paths = Vec::new();
        let mut reached = vec![false; pod_template_fields().structs().len()];
        find_paths(0, &[], &mut reached, &mut paths);
        Self { rng: fastrand::Rng::with_seed(seed), paths }
    }

    /// How many fields there are.
    #[must_use]
    pub fn field_count(&self) -> usize {
        self.paths.len()
    }

    /// A template that has the field with this number, and others at random.
    pub fn template(&mut self, number: usize) -> Value {
        let path = self.paths[number % self.paths.len()].clone();
        Value::Object(self.object(pod_template_fields().root(), 0, Some(&path)))
    }

    /// The collision count of a Deployment.
    pub fn collisions(&mut self) -> Option<i32> {
        *self.choose(&[None, Some(0), Some(1), Some(7), Some(i32::MAX)])
    }

    fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.rng.usize(..among.len())]
    }

    fn object(&mut self, part: &Struct, depth: usize, path: Option<&[usize]>) -> Map<String, Value> {
        let mut object = Map::new();
        let (wanted, rest) = match path {
            Some([wanted, rest @ ..]) => (Some(*wanted), Some(rest)),
            _ => (None, None),
        };
        for (index, field) in part.fields.iter().enumerate() {
            let rest = rest.filter(|_| wanted == Some(index));
            self.field(field, depth, rest, &mut object);
        }
        object
    }

    fn field(
        &mut self,
        field: &Field,
        depth: usize,
        path: Option<&[usize]>,
        object: &mut Map<String, Value>,
    ) {
        if let (None, Shape::Struct(index)) = (field.json, &field.shape) {
            object.extend(self.object(pod_template_fields().part(*index), depth, path));
        } else if let Some(name) = field.json
            && (path.is_some() || self.rng.u8(..100) < SET[depth.min(SET.len() - 1)])
        {
            let is_wide = field.go_type.ends_with("int64");
            object.insert(name.to_owned(), self.value(&field.shape, depth + 1, is_wide, path));
        }
    }

    fn value(&mut self, shape: &Shape, depth: usize, is_wide: bool, path: Option<&[usize]>) -> Value {
        match shape {
            Shape::Text => {
                (*self.choose(&["", "a", "x y", "ü<&>\u{2028}", "l\n\"m\"\\", "{}[]:", "0", "true"])).into()
            }
            Shape::Bool => self.rng.bool().into(),
            Shape::Int if is_wide => (*self.choose(&[0, 1, -1, 30, 9_007_199_254_740_993, i64::MIN])).into(),
            Shape::Int => (*self.choose(&[0, 1, -1, 420, i32::MAX, i32::MIN])).into(),
            Shape::Quantity => self.quantity().into(),
            Shape::Time => (*self.choose(&[
                "2026-01-01T00:00:00Z",
                "1969-12-31T23:59:59Z",
                "2026-07-01T12:00:00+02:00",
                "9999-12-01T23:59:59Z",
            ]))
            .into(),
            Shape::IntOrString => {
                self.choose(&[json!(0), json!(80), json!("80"), json!("http"), json!("")]).clone()
            }
            Shape::FieldsV1 => self.choose(&[json!({}), json!({"f:a": {".": {}, "f:b": 1}})]).clone(),
            Shape::Struct(index) => {
                Value::Object(self.object(pod_template_fields().part(*index), depth, path))
            }
            Shape::Pointer(_) if path.is_none() && self.rng.u8(..10) == 0 => Value::Null,
            Shape::Pointer(pointee) => self.value(pointee, depth, is_wide, path),
            Shape::List(element) => {
                let count = self.count(path);
                (0..count)
                    .map(|index| self.value(element, depth, is_wide, path.filter(|_| index == 0)))
                    .collect()
            }
            Shape::Map(element) => {
                let count = self.count(path);
                let keys = ["cpu", "a.example/b", "Z", "memory", "pod-template-hash"];
                let entries: Map<String, Value> = (0..count)
                    .map(|_| ((*self.choose(&keys)).to_owned(), self.value(element, depth, false, path)))
                    .collect();
                Value::Object(entries)
            }
        }
    }

    fn count(&mut self, path: Option<&[usize]>) -> usize {
        if path.is_some() { self.rng.usize(1..3) } else { self.rng.usize(0..3) }
    }

    /// A text that is a quantity, canonical or not.
    fn quantity(&mut self) -> String {
        let sign = *self.choose(&["", "", "", "-", "+"]);
        let mut digits = |most: usize| -> String {
            let zeros = "0".repeat(self.rng.usize(0..3) * self.rng.usize(0..2));
            let count = self.rng.usize(1..=most);
            (0..count).map(|_| *self.rng.choice(b"0012345678").unwrap_or(&b'1') as char).collect::<String>()
                + &zeros
        };
        let whole = digits(3);
        let (long, fraction) = (digits(30), digits(4));
        let suffixes = [
            "", "", "m", "k", "M", "G", "T", "P", "E", "n", "u", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3",
            "E-2", "e+7", "e30",
        ];
        let suffix = *self.choose(&suffixes);
        match self.rng.u8(..10) {
            0 => {
                (*self.choose(&["0", "1Gi", "1073741824", "500m", "0.5", "1.500", "8Gi", "0Ki", "-0", "00"]))
                    .into()
            }
            1 => format!("{sign}{long}{suffix}"),
            2 => format!("{sign}{whole}.{long}{suffix}"),
            3..=5 => format!("{sign}{whole}.{fraction}{suffix}"),
            _ => format!("{sign}{whole}{suffix}"),
        }
    }

    /// Adds fields that no version knows to structs of a template.
    pub fn add_unknown_fields(&mut self, template: &mut Value) {
        self.add_unknown(&Shape::Struct(0), template);
    }

    fn add_unknown(&mut self, shape: &Shape, value: &mut Value) {
        match (shape, value) {
            (Shape::Struct(index), Value::Object(object)) => {
                self.add_unknown_to(pod_template_fields().part(*index), object);
                if self.rng.bool() {
                    let new = self.choose(&[json!(1), json!("x"), json!({"name": []}), Value::Null]).clone();
                    object.insert("invented".to_owned(), new);
                }
            }
            (Shape::Pointer(pointee), value) => self.add_unknown(pointee, value),
            (Shape::List(element), Value::Array(list)) => {
                list.iter_mut().for_each(|value| self.add_unknown(element, value));
            }
            _ => {}
        }
    }

    fn add_unknown_to(&mut self, part: &Struct, object: &mut Map<String, Value>) {
        for field in &part.fields {
            match (field.json, &field.shape) {
                (None, Shape::Struct(index)) => {
                    self.add_unknown_to(pod_template_fields().part(*index), object);
                }
                (Some(name), shape) => {
                    if let Some(value) = object.get_mut(name) {
                        self.add_unknown(shape, value);
                    }
                }
                (None, _) => {}
            }
        }
    }

    /// A template that differs in one value, or only in its spelling.
    pub fn variant(&mut self, template: &Value) -> Value {
        let mut variant = template.clone();
        self.change(&Shape::Struct(0), &mut variant, 0);
        variant
    }

    /// Walks down at random and changes what it arrives at.
    fn change(&mut self, shape: &Shape, value: &mut Value, depth: usize) {
        match (shape, value) {
            (Shape::Pointer(pointee), value) => self.change(pointee, value, depth),
            (Shape::Struct(index), Value::Object(object)) => {
                let mut fields = Vec::new();
                collect(pod_template_fields().part(*index), &mut fields);
                let set: Vec<_> = fields.iter().filter(|(name, _)| object.contains_key(*name)).collect();
                // Mostly a field that is set, and sometimes one that is not.
                let (name, field) = if set.is_empty() || self.rng.u8(..8) == 0 {
                    *self.choose(&fields)
                } else {
                    **self.choose(&set)
                };
                match object.get_mut(name) {
                    Some(value) if self.rng.u8(..12) > 0 => self.change(&field.shape, value, depth + 1),
                    Some(_) => drop(object.remove(name)),
                    None => {
                        let empty = [json!(null), json!([]), json!({}), json!(""), json!(0), json!(false)];
                        let fits: Vec<_> = empty.iter().filter(|empty| fits(&field.shape, empty)).collect();
                        let new = (*self.choose(&fits)).clone();
                        object.insert(name.to_owned(), new);
                    }
                }
            }
            (Shape::List(element), Value::Array(list)) if !list.is_empty() && self.rng.u8(..6) > 0 => {
                let index = self.rng.usize(..list.len());
                self.change(element, &mut list[index], depth);
            }
            (Shape::List(_), value) => *value = self.choose(&[Value::Null, json!([])]).clone(),
            (Shape::Map(element), Value::Object(map)) if !map.is_empty() && self.rng.u8(..6) > 0 => {
                let keys: Vec<String> = map.keys().cloned().collect();
                let key = self.choose(&keys).clone();
                if let Some(value) = map.get_mut(&key) {
                    self.change(element, value, depth);
                }
            }
            (Shape::Map(_), value) => *value = self.choose(&[Value::Null, json!({})]).clone(),
            (Shape::Quantity, value) => {
                let same = value.as_str().and_then(respelled).filter(|_| self.rng.u8(..3) > 0);
                *value = Value::String(same.unwrap_or_else(|| self.quantity()));
            }
            (shape, value) => *value = self.value(shape, depth, false, None),
        }
    }
}

/// The paths to all fields of a struct and of the structs below it that were not reached yet.
fn find_paths(index: usize, prefix: &[usize], reached: &mut [bool], paths: &mut Vec<Vec<usize>>) {
    if std::mem::replace(&mut reached[index], true) {
        return;
    }
    for (at, field) in pod_template_fields().part(index).fields.iter().enumerate() {
        let path = [prefix, &[at]].concat();
        paths.push(path.clone());
        let mut shape = &field.shape;
        while let Shape::Pointer(inner) | Shape::List(inner) | Shape::Map(inner) = shape {
            shape = inner;
        }
        if let Shape::Struct(index) = shape {
            find_paths(*index, &path, reached, paths);
        }
    }
}

/// The fields of a struct by their names in JSON.
fn collect(part: &'static Struct, into: &mut Vec<(&'static str, &'static Field)>) {
    for field in &part.fields {
        match (field.json, &field.shape) {
            (Some(name), _) => into.push((name, field)),
            (None, Shape::Struct(index)) => collect(pod_template_fields().part(*index), into),
            (None, _) => {}
        }
    }
}

/// Whether an API server accepts an empty value for a field.
fn fits(shape: &Shape, empty: &Value) -> bool {
    match shape {
        _ if empty.is_null() => true,
        Shape::Text => empty.is_string(),
        Shape::Bool => empty.is_boolean(),
        Shape::Int | Shape::IntOrString => empty.is_number(),
        Shape::Quantity | Shape::Time => false,
        Shape::FieldsV1 | Shape::Struct(_) | Shape::Map(_) => empty.is_object(),
        Shape::Pointer(pointee) => fits(pointee, empty),
        Shape::List(_) => empty.is_array(),
    }
}

/// Another spelling of the same quantity.
fn respelled(text: &str) -> Option<String> {
    let larger = [("m", "u"), ("k", ""), ("M", "k"), ("G", "M"), ("u", "n")];
    let larger = larger.iter().find_map(|(from, to)| Some(format!("{}000{to}", text.strip_suffix(from)?)));
    let binary = [("Mi", "Ki"), ("Gi", "Mi"), ("Ki", "")];
    let binary = binary.iter().find_map(|(from, to)| {
        let number: i64 = text.strip_suffix(from)?.parse().ok()?;
        Some(format!("{}{to}", number.checked_mul(1024)?))
    });
    let plain = text.parse::<i64>().ok().map(|number| format!("{number}.0"));
    binary.or_else(|| larger.filter(|text| !text.contains('.'))).or(plain)
}
