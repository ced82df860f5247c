//! Sequences out of a seed: the same seed and number always give the same requests.

mod deletes;
mod hostile;
mod kinds;
mod patches;
mod reads;
mod subresources;
mod writes;

use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use self::kinds::Kind;
use crate::sequence::{Ask, Content, Edit, Sequence, Step};

pub(crate) const JSON: &str = "application/json";

/// Makes sequences.
#[derive(Debug)]
pub struct Generator {
    seed: u64,
    kinds: Vec<Kind>,
    metadata_edits: Vec<Vec<Value>>,
}

impl Generator {
    /// For one seed. Words in `only` restrict the kinds to those whose `resource.group` contains one of them.
    #[must_use]
    pub fn new(seed: u64, only: &[String]) -> Generator {
        let mut kinds = kinds::all();
        kinds.retain(|kind| only.is_empty() || only.iter().any(|word| kind.qualified().contains(word)));
        Generator { seed, kinds, metadata_edits: kinds::metadata_edits() }
    }

    /// The sequence of that number.
    #[must_use]
    pub fn sequence(&self, number: u64) -> Sequence {
        let mut chance = Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
        let first = chance.usize(..self.kinds.len());
        let mut chosen = vec![&self.kinds[first]];
        let second = &self.kinds[chance.usize(..self.kinds.len())];
        if chance.u8(..100) < 25 && !second.alone && !chosen[0].alone {
            chosen.push(second);
        }
        let mut making = Making {
            chance,
            chosen,
            metadata_edits: &self.metadata_edits,
            objects: Vec::new(),
            steps: Vec::new(),
            watches: 0,
        };
        making.prepare();
        let length = making.chance.usize(4..=15);
        making.create();
        for _ in 1..length {
            making.act();
        }
        Sequence { number, steps: making.steps }
    }
}

/// An object that a sequence may have made.
struct Object<'a> {
    kind: &'a Kind,
    name: String,
    /// The steps that answer with it if all goes well.
    answers: Vec<usize>,
}

/// A sequence in the making.
struct Making<'a> {
    chance: Rng,
    chosen: Vec<&'a Kind>,
    metadata_edits: &'a [Vec<Value>],
    objects: Vec<Object<'a>>,
    steps: Vec<Step>,
    watches: usize,
}

impl<'a> Making<'a> {
    /// What every sequence needs: its namespace, and the account that pods run under.
    fn prepare(&mut self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}});
        self.push("create", "namespaces", post("/api/v1/namespaces", namespace));
        if self.chosen.iter().any(|kind| kind.kind == "Pod") && self.often(95) {
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            self.push("create", "serviceaccounts", post("/api/v1/namespaces/{ns}/serviceaccounts", account));
        }
    }

    /// One more request.
    fn act(&mut self) {
        match self.chance.u8(..100) {
            0..=14 => self.create(),
            15..=27 => self.update(),
            28..=50 => self.patch(),
            51..=58 => self.write_status(),
            59..=65 => self.subresource(),
            66..=71 => self.get(),
            72..=80 => self.list(),
            81..=86 => self.watch(),
            87..=93 => self.delete(),
            94..=95 => self.delete_collection(),
            _ => self.hostile(),
        }
    }

    /// True in so many of a hundred cases.
    fn often(&mut self, percent: u8) -> bool {
        self.chance.u8(..100) < percent
    }

    /// One of the values.
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.chance.usize(..values.len())]
    }

    fn kind(&mut self) -> &'a Kind {
        self.chosen[self.chance.usize(..self.chosen.len())]
    }

    /// An object of the sequence, by its place; mostly one that was created before.
    fn object(&mut self) -> usize {
        if !self.objects.is_empty() && self.often(90) {
            return self.chance.usize(..self.objects.len());
        }
        let kind = self.kind();
        self.object_of(kind)
    }

    fn object_of(&mut self, kind: &'a Kind) -> usize {
        let letter = self.one_of(&["a", "a", "b", "c"]);
        let name = kind.object_name(letter);
        let known =
            self.objects.iter().position(|object| object.kind.kind == kind.kind && object.name == name);
        known.unwrap_or_else(|| {
            self.objects.push(Object { kind, name, answers: Vec::new() });
            self.objects.len() - 1
        })
    }

    fn path(&self, object: usize) -> String {
        let object = &self.objects[object];
        format!("{}/{}", object.kind.collection(), object.name)
    }

    /// An earlier answer with this object: the latest, or now and then an older one.
    fn answer(&mut self, object: usize) -> Option<usize> {
        let answers = self.objects[object].answers.clone();
        if answers.len() > 1 && self.often(12) {
            return Some(answers[self.chance.usize(..answers.len())]);
        }
        answers.last().copied()
    }

    /// A field of an earlier answer with this object.
    fn reference(&mut self, object: usize, pointer: &str) -> Option<String> {
        self.answer(object).map(|step| format!("${{{step}{pointer}}}"))
    }

    /// A few changes.
    fn edits(&mut self, kind: &Kind) -> Vec<Edit> {
        let count = self.one_of(&[0, 1, 1, 1, 2, 3]);
        (0..count)
            .map(|_| {
                if self.often(75) {
                    kind.edit(&mut self.chance)
                } else {
                    kinds::choose(self.metadata_edits, &mut self.chance)
                }
            })
            .collect()
    }

    /// Adds a step and returns its number.
    fn push(&mut self, verb: &'static str, resource: &str, ask: Ask) -> usize {
        let id = self.steps.len();
        self.steps.push(Step { id, verb, resource: resource.to_owned(), ask });
        id
    }

    /// Adds a step that answers with an object.
    fn push_about(&mut self, verb: &'static str, object: usize, ask: Ask) {
        let resource = self.objects[object].kind.qualified();
        let id = self.push(verb, &resource, ask);
        self.objects[object].answers.push(id);
    }

    /// Options of writes, now and then.
    fn write_options(&mut self, dry: bool) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if dry || self.often(8) {
            query.push(("dryRun", "All".to_owned()));
        }
        if self.often(15) {
            query.push(("fieldManager", self.one_of(&["m1", "m2", "kubectl"]).to_owned()));
        }
        if self.often(15) {
            query.push((
                "fieldValidation",
                self.one_of(&["Strict", "Strict", "Warn", "Ignore", "Odd"]).to_owned(),
            ));
        }
        query
    }
}

fn ask(method: Method, path: &str, content: Content) -> Ask {
    Ask { method, path: path.to_owned(), query: Vec::new(), accept: JSON, content_type: JSON, content }
}

fn post(path: &str, document: Value) -> Ask {
    ask(Method::POST, path, Content::Json(document))
}

/// A parameter of constants, as a query has it.
fn pair((name, value): (&'static str, &str)) -> (&'static str, String) {
    (name, value.to_owned())
}

fn edited(mut document: Value, edits: &[Edit]) -> Value {
    edits.iter().for_each(|edit| edit.make(&mut document));
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_number_make_one_sequence() {
        let text = |seed: u64, number: u64| -> Vec<String> {
            Generator::new(seed, &[]).sequence(number).steps.iter().map(ToString::to_string).collect()
        };
        assert_eq!(text(1, 5), text(1, 5));
        assert_ne!(text(1, 5), text(1, 6));
        assert_ne!(text(1, 5), text(2, 5));
    }

    #[test]
    fn every_verb_comes_up() {
        let generator = Generator::new(1, &[]);
        let mut verbs: Vec<&str> =
            (0..400).flat_map(|n| generator.sequence(n).steps).map(|step| step.verb).collect();
        verbs.sort_unstable();
        verbs.dedup();
        let all = [
            "apply",
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "odd",
            "patch-json",
            "patch-merge",
            "patch-strategic",
            "update",
            "watch",
        ];
        assert_eq!(verbs, all);
    }
}
