//! The schemas of transcoded kinds, derived from the table of types.

use std::sync::LazyLock;

use super::super::numbers::{by_number, select};
use super::super::selection::Selection;
use super::{Field, FullMessage};
use crate::Resource;
use crate::types::{self, Presence, Shape, Source, Struct};

/// The struct whose message several kinds share.
const POD_TEMPLATE_SPEC: &str = "core.v1.PodTemplateSpec";

/// The message of a pod template.
pub(super) static POD_TEMPLATE: LazyLock<FullMessage> = LazyLock::new(|| {
    let mut derivation = Derivation::default();
    let template = derivation.source.named(POD_TEMPLATE_SPEC);
    derivation.message(&template, &NOTHING)
});

/// Nothing is skipped.
const NOTHING: Selection = Selection::Fields(Vec::new());

/// What is skipped of all metadata. The server restores these fields on a PUT.
const METADATA: &str = "selfLink managedFields";

impl FullMessage {
    /// The message of a built-in kind without the fields that are neither cached nor written back:
    /// `status { images nodeInfo }`. Of the metadata, `selfLink` and `managedFields` are skipped.
    ///
    /// The message lives as long as the process: a `LazyLock` derives it once.
    ///
    /// # Panics
    /// If the kind has no such field, or one of a type that is not transcoded.
    #[must_use]
    pub fn of(resource: &Resource, skipped: &'static str) -> Self {
        let skipped = Selection::parse(skipped).with("metadata", Selection::parse(METADATA));
        let mut derivation = Derivation::default();
        let name = types::struct_name(&resource.group, &resource.version, &resource.kind);
        let kind = derivation.source.named(&name);
        derivation.message(&kind, &skipped)
    }
}

struct Derivation {
    source: Source,
    /// The complete messages derived so far, by the index of their struct.
    complete: Vec<(usize, &'static FullMessage)>,
}

impl Default for Derivation {
    fn default() -> Self {
        Self { source: Source::new(), complete: Vec::new() }
    }
}

impl Derivation {
    fn message(&mut self, of: &Struct, skipped: &Selection) -> FullMessage {
        assert_eq!(select(of, skipped).count(), skipped.names().count());
        let fields = select(of, &Selection::All).map(|(name, field, _)| {
            let field_in_full = match skipped.of(name) {
                Some(Selection::All) => Some(Field::Skipped),
                Some(part) => self.field(&field.shape, field.presence, part),
                None => self.field(&field.shape, field.presence, &NOTHING),
            };
            let found = field_in_full.unwrap_or_else(|| panic!("{}.{name} is not transcoded", of.name));
            (field.numbers.as_slice(), name, found)
        });
        let fields = fields.collect();
        FullMessage(by_number(fields, &|inlined| Field::Inline(leak(FullMessage(inlined.leak())))))
    }

    fn part(&mut self, at: usize, skipped: &Selection) -> Field {
        let is_complete = skipped.names().next().is_none();
        if let Some((_, known)) = self.complete.iter().find(|(known, _)| is_complete && *known == at) {
            return Field::Part(known);
        }
        let part = self.source.parse(at);
        if is_complete && part.name == POD_TEMPLATE_SPEC {
            return Field::PodTemplate;
        }
        let message = leak(self.message(&part, skipped));
        if is_complete {
            self.complete.push((at, message));
        }
        Field::Part(message)
    }

    fn field(&mut self, shape: &Shape, presence: Presence, skipped: &Selection) -> Option<Field> {
        let is_omitted = presence != Presence::Always;
        Some(match shape {
            Shape::Text if is_omitted => Field::Text,
            Shape::Text => Field::TextSet,
            Shape::Int32 | Shape::Int64 if is_omitted => Field::Int,
            Shape::Int32 | Shape::Int64 => Field::IntSet,
            Shape::Flag if is_omitted => Field::Bool,
            Shape::Flag => Field::BoolSet,
            Shape::Bytes if is_omitted => Field::Bytes,
            Shape::Bytes => Field::BytesSet,
            Shape::Time => Field::Time,
            Shape::Quantity => Field::Quantity,
            Shape::IntOrString => Field::IntOrString,
            Shape::Any => Field::RawJson,
            Shape::Struct(at) => self.part(*at, skipped),
            // A pointer is encoded only if it is set, and then it is never omitted.
            Shape::Pointer(to) => self.field(to, Presence::Always, skipped)?,
            Shape::List(items) => match self.field(items, Presence::Always, skipped)? {
                Field::Part(items) => Field::Parts(items),
                Field::IntSet => Field::Ints,
                Field::TextSet => Field::Texts,
                _ => return None,
            },
            Shape::Map(values) => match &**values {
                Shape::Text => Field::Map,
                Shape::Quantity => Field::Quantities,
                Shape::Time => Field::Times,
                Shape::List(items) if matches!(**items, Shape::Text) => Field::TextLists,
                _ => return None,
            },
            _ => return None,
        })
    }
}

fn leak(message: FullMessage) -> &'static FullMessage {
    Box::leak(Box::new(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Node};

    #[test]
    fn every_shape_of_the_table_has_its_encoding() {
        let described = |message: &FullMessage, name: &str| {
            let found = message.0.iter().find(|(_, known, _)| *known == name).unwrap();
            let field = format!("{:?}", found.2);
            format!("{} {}", found.0, field.split('(').next().unwrap())
        };
        let part = |message: &'static FullMessage, name: &str| match message
            .0
            .iter()
            .find(|it| it.1 == name)
            .unwrap()
            .2
        {
            Field::Part(part) | Field::Parts(part) | Field::Inline(part) => part,
            other => panic!("{other:?}"),
        };
        let (meta, spec) = (part(&POD_TEMPLATE, "metadata"), part(&POD_TEMPLATE, "spec"));
        assert_eq!(described(meta, "name"), "1 Text");
        assert_eq!(described(meta, "creationTimestamp"), "8 Time");
        assert_eq!(described(meta, "deletionGracePeriodSeconds"), "10 IntSet");
        assert_eq!(described(meta, "labels"), "11 Map");
        assert_eq!(described(part(meta, "managedFields"), "fieldsV1"), "7 RawJson");
        assert_eq!(described(spec, "containers"), "2 Parts");
        assert_eq!(described(spec, "hostNetwork"), "11 Bool");
        assert_eq!(described(spec, "hostUsers"), "37 BoolSet");
        assert_eq!(described(spec, "overhead"), "32 Quantities");
        assert_eq!(described(part(spec, "volumes"), ""), "2 Inline");
        let container = part(spec, "containers");
        assert_eq!(
            (described(container, "name"), described(container, "image")),
            ("1 TextSet".into(), "2 Text".into())
        );
        assert_eq!(described(container, "command"), "3 Texts");
        assert_eq!(described(part(container, "ports"), "containerPort"), "3 IntSet");
        assert_eq!(described(part(spec, "securityContext"), "supplementalGroups"), "4 Ints");
        assert_eq!(
            described(part(part(part(container, "livenessProbe"), ""), "tcpSocket"), "port"),
            "1 IntOrString"
        );
        assert_eq!(described(part(part(spec, "volumes"), ""), "emptyDir"), "2 Part");
    }
    #[test]
    fn skipped_fields_are_known_but_not_transcoded() {
        let message = FullMessage::of(&Node::RESOURCE, "status { images nodeInfo { kernelVersion } }");
        let field = |message: &FullMessage, name: &str| {
            message.0.iter().find(|(_, known, _)| *known == name).map(|(number, _, field)| (*number, *field))
        };
        let Some((3, Field::Part(status))) = field(&message, "status") else { panic!("{message:?}") };
        assert!(matches!(field(status, "images"), Some((8, Field::Skipped))));
        let Some((7, Field::Part(info))) = field(status, "nodeInfo") else { panic!("{status:?}") };
        assert!(matches!(field(info, "kernelVersion"), Some((4, Field::Skipped))));
        assert!(matches!(field(info, "osImage"), Some((5, Field::TextSet))));
        let Some((1, Field::Part(meta))) = field(&message, "metadata") else { panic!("{message:?}") };
        assert!(matches!(field(meta, "managedFields"), Some((17, Field::Skipped))));
    }

    #[test]
    #[should_panic(expected = "core.v1.NodeStatus has no field image")]
    fn unknown_fields_cannot_be_skipped() {
        let _ = FullMessage::of(&Node::RESOURCE, "status { image }");
    }
}
