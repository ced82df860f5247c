//! Generates sequences from a seed: the same seed and number always give the same requests.

mod admission;
mod deletes;
mod invalid;
mod kinds;
mod patches;
mod reads;
mod subresources;
mod writes;

use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use self::admission::{AdmissionEdits, AdmissionTable};
use self::kinds::Kind;
use crate::sequence::{Content, Edit, RequestTemplate, Sequence, Step};
use crate::users;

pub(crate) const JSON: &str = "application/json";

/// Generates sequences.
#[derive(Debug)]
pub struct Generator {
    seed: u64,
    kinds: Vec<Kind>,
    metadata_edits: Vec<Vec<Value>>,
    admission: AdmissionTable,
}

impl Generator {
    /// A generator for one seed. `only` restricts the kinds to those whose `resource.group` contains one of
    /// its words.
    #[must_use]
    pub fn new(seed: u64, only: &[String]) -> Generator {
        let mut kinds = kinds::all();
        kinds.retain(|kind| only.is_empty() || only.iter().any(|word| kind.qualified().contains(word)));
        Generator { seed, kinds, metadata_edits: kinds::metadata_edits(), admission: admission::table() }
    }

    /// The sequence with that number.
    #[must_use]
    pub fn sequence(&self, number: u64) -> Sequence {
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
        let first = rng.usize(..self.kinds.len());
        let mut chosen = vec![&self.kinds[first]];
        let second = &self.kinds[rng.usize(..self.kinds.len())];
        if rng.u8(..100) < 25 && !second.exclusive && !chosen[0].exclusive {
            chosen.push(second);
        }
        let mut builder = SequenceBuilder {
            rng,
            chosen,
            metadata_edits: &self.metadata_edits,
            admission: AdmissionEdits::default(),
            objects: Vec::new(),
            steps: Vec::new(),
            watches: 0,
        };
        builder.prepare(&self.admission);
        let length = builder.rng.usize(4..=15);
        builder.create();
        for _ in 1..length {
            builder.push_random_request();
        }
        builder.read_quotas();
        Sequence { number, steps: builder.steps }
    }
}

/// An object that a sequence may have created.
struct Object<'a> {
    kind: &'a Kind,
    name: String,
    /// The steps whose response is the object if they succeed.
    answers: Vec<usize>,
}

/// A sequence while it is generated.
struct SequenceBuilder<'a> {
    rng: Rng,
    chosen: Vec<&'a Kind>,
    metadata_edits: &'a [Vec<Value>],
    admission: AdmissionEdits<'a>,
    objects: Vec<Object<'a>>,
    steps: Vec<Step>,
    watches: usize,
}

impl<'a> SequenceBuilder<'a> {
    /// Creates the namespace with what admission finds in it and, for pods, the default ServiceAccount.
    fn prepare(&mut self, admission: &'a AdmissionTable) {
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}});
        if let Some(labels) = self.pod_security_labels(admission) {
            namespace["metadata"]["labels"] = labels;
        }
        self.push("create", "namespaces", create_request("/api/v1/namespaces", namespace));
        if self.chosen.iter().any(|kind| kind.kind == "Pod") && self.percent_chance(95) {
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            self.push(
                "create",
                "serviceaccounts",
                create_request("/api/v1/namespaces/{ns}/serviceaccounts", account),
            );
        }
        self.prepare_limits(admission);
    }

    /// Adds a random request.
    fn push_random_request(&mut self) {
        match self.rng.u8(..100) {
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
            _ => self.invalid_request(),
        }
    }

    /// True in `percent` of a hundred cases.
    fn percent_chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    /// One of the values.
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.rng.usize(..values.len())]
    }

    fn kind(&mut self) -> &'a Kind {
        self.chosen[self.rng.usize(..self.chosen.len())]
    }

    /// The index of an object of the sequence; mostly one that was created before.
    fn object(&mut self) -> usize {
        if !self.objects.is_empty() && self.percent_chance(90) {
            return self.rng.usize(..self.objects.len());
        }
        let kind = self.kind();
        self.object_of(kind)
    }

    fn object_of(&mut self, kind: &'a Kind) -> usize {
        let letter = self.one_of(&["a", "a", "b", "c"]);
        let name = kind.object_name(letter);
        let existing =
            self.objects.iter().position(|object| object.kind.kind == kind.kind && object.name == name);
        existing.unwrap_or_else(|| {
            self.objects.push(Object { kind, name, answers: Vec::new() });
            self.objects.len() - 1
        })
    }

    fn path(&self, object: usize) -> String {
        let object = &self.objects[object];
        format!("{}/{}", object.kind.collection_path(), object.name)
    }

    /// An earlier response with this object: the latest, or in 12 of 100 cases an older one.
    fn answer(&mut self, object: usize) -> Option<usize> {
        let answers = self.objects[object].answers.clone();
        if answers.len() > 1 && self.percent_chance(12) {
            return Some(answers[self.rng.usize(..answers.len())]);
        }
        answers.last().copied()
    }

    /// A reference to a field of an earlier response with this object.
    fn reference(&mut self, object: usize, pointer: &str) -> Option<String> {
        self.answer(object).map(|step| format!("${{{step}{pointer}}}"))
    }

    /// A few random changes.
    fn edits(&mut self, kind: &Kind) -> Vec<Edit> {
        let count = self.one_of(&[0, 1, 1, 1, 2, 3]);
        (0..count)
            .map(|_| {
                if let Some(edit) = self.admission_edit(kind) {
                    edit
                } else if self.percent_chance(75) {
                    kind.edit(&mut self.rng)
                } else {
                    kinds::choose(self.metadata_edits, &mut self.rng)
                }
            })
            .collect()
    }

    /// Adds a step and returns its number.
    fn push(&mut self, verb: &'static str, resource: &str, mut ask: RequestTemplate) -> usize {
        let id = self.steps.len();
        // Permissions of signers are checked beyond those of RBAC.
        if resource.contains(".certificates.k8s.io") && self.percent_chance(40) {
            ask.user = self.one_of(&users::NAMES);
        }
        self.steps.push(Step { id, verb, resource: resource.to_owned(), ask, settles: false });
        id
    }

    /// Adds a step whose response is an object.
    fn push_about(&mut self, verb: &'static str, object: usize, ask: RequestTemplate) {
        let resource = self.objects[object].kind.qualified();
        let id = self.push(verb, &resource, ask);
        self.objects[object].answers.push(id);
    }

    /// Random options of writes.
    fn write_options(&mut self, dry_run_only: bool) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if dry_run_only || self.percent_chance(8) {
            query.push(("dryRun", "All".to_owned()));
        }
        if self.percent_chance(15) {
            query.push(("fieldManager", self.one_of(&["m1", "m2", "kubectl"]).to_owned()));
        }
        if self.percent_chance(15) {
            query.push((
                "fieldValidation",
                self.one_of(&["Strict", "Strict", "Warn", "Ignore", "Odd"]).to_owned(),
            ));
        }
        query
    }
}

fn ask(method: Method, path: &str, content: Content) -> RequestTemplate {
    RequestTemplate {
        method,
        path: path.to_owned(),
        query: Vec::new(),
        accept: JSON,
        content_type: JSON,
        content,
        user: "",
    }
}

fn create_request(path: &str, document: Value) -> RequestTemplate {
    ask(Method::POST, path, Content::Json(document))
}

/// A query parameter with an owned value.
fn owned_pair((name, value): (&'static str, &str)) -> (&'static str, String) {
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
    fn seed_and_number_determine_the_sequence() {
        let text = |seed: u64, number: u64| -> Vec<String> {
            Generator::new(seed, &[]).sequence(number).steps.iter().map(ToString::to_string).collect()
        };
        assert_eq!(text(1, 5), text(1, 5));
        assert_ne!(text(1, 5), text(1, 6));
        assert_ne!(text(1, 5), text(2, 5));
    }

    #[test]
    fn every_verb_occurs() {
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
