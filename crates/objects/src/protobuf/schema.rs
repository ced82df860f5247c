//! The protobuf numbers of the fields that are read, derived from the table of types.

use super::numbers::{by_number, select};
use super::selection::Selection;
use crate::Resource;
use crate::types::{self, Presence, Source, Struct};

/// The fields of a message that are read; all others are skipped.
#[derive(Debug)]
pub struct Message(pub &'static [(u32, &'static str, Shape)]);

/// The type of a field. Servers encode unset strings and numbers as empty and zero, where JSON omits them.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A string; empty means unset.
    Text,
    /// A number that is encoded only if it is set.
    Number,
    /// A number; zero means unset.
    Count,
    /// A boolean.
    Flag,
    /// A timestamp.
    Time,
    /// A message.
    Part(&'static Message),
    /// A message whose fields JSON inlines.
    Inline(&'static Message),
    /// Repeated strings.
    Texts,
    /// Repeated messages.
    Parts(&'static Message),
    /// A map of strings.
    Map,
    /// A string that is encoded only if it is set; empty differs from unset.
    TextIfSet,
    /// A map of quantities.
    Quantities,
}

/// The metadata of every projection.
const METADATA: &str = "name generateName namespace uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers";

impl Message {
    /// The message of a projection of a built-in kind, from the fields that it keeps beside the metadata:
    /// `spec { nodeName containers,initContainers { name } }`. A name without braces stands for the whole field, and
    /// `{ }` for its presence.
    ///
    /// The message lives as long as the process: a `LazyLock` derives it once.
    ///
    /// # Panics
    /// If the kind has no such field, or one of a type that projections do not read.
    #[must_use]
    pub fn of(resource: &Resource, fields: &'static str) -> Self {
        Self::of_all(resource, &[fields])
    }

    /// The message of a projection that keeps what each of several selections names; see [`Message::of`].
    ///
    /// # Panics
    /// As [`Message::of`].
    #[must_use]
    pub fn of_all(resource: &Resource, selections: &[&'static str]) -> Self {
        let name = types::struct_name(&resource.group, &resource.version, &resource.kind);
        let fields = selections.iter().map(|fields| Selection::parse(fields)).reduce(Selection::merged);
        Self::of_struct(&name, &fields.unwrap_or_default().with("metadata", Selection::parse(METADATA)))
    }

    /// The message of the metadata of any kind.
    pub(super) fn metadata_only() -> Self {
        Self::of_struct("meta.v1.PartialObjectMetadata", &with_metadata(""))
    }

    /// The message of the error that a server reports.
    pub(super) fn status() -> Self {
        Self::of_struct("meta.v1.Status", &Selection::parse("status message reason details code"))
    }

    fn of_struct(name: &str, selection: &Selection) -> Self {
        let source = Source::new();
        message(&source, &source.named(name), selection)
    }
}

fn with_metadata(fields: &'static str) -> Selection {
    Selection::parse(fields).with("metadata", Selection::parse(METADATA))
}

fn message(source: &Source, of: &Struct, selection: &Selection) -> Message {
    let fields = select(of, selection);
    let shapes = fields.map(|(name, field, part)| {
        let shape = shape(source, &field.shape, field.presence, part);
        let shape = shape.unwrap_or_else(|| panic!("projections do not read {}.{name}", of.name));
        (field.numbers.as_slice(), name, shape)
    });
    Message(by_number(shapes.collect(), &|inlined: Vec<(u32, &'static str, Shape)>| {
        // The decoder returns from one inlined message, not from one within another.
        assert!(inlined.iter().all(|(_, name, _)| !name.is_empty()), "{} inlines twice", of.name);
        Shape::Inline(leak(Message(inlined.leak())))
    }))
}

fn shape(source: &Source, shape: &types::Shape, presence: Presence, part: &Selection) -> Option<Shape> {
    use types::Shape as Type;
    Some(match shape {
        Type::Text => Shape::Text,
        Type::Flag => Shape::Flag,
        Type::Int32 | Type::Int64 if presence == Presence::IfSet => Shape::Count,
        Type::Int32 | Type::Int64 => Shape::Number,
        Type::Time | Type::MicroTime => Shape::Time,
        Type::Struct(at) => Shape::Part(leak(message(source, &source.parse(*at), part))),
        Type::Pointer(to) => match self::shape(source, to, Presence::Always, part)? {
            Shape::Text => Shape::TextIfSet,
            other => other,
        },
        Type::List(items) => match self::shape(source, items, Presence::Always, part)? {
            Shape::Text => Shape::Texts,
            Shape::Part(items) => Shape::Parts(items),
            _ => return None,
        },
        Type::Map(values) => match **values {
            Type::Text => Shape::Map,
            Type::Quantity => Shape::Quantities,
            _ => return None,
        },
        _ => return None,
    })
}

fn leak(message: Message) -> &'static Message {
    Box::leak(Box::new(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Lease, Pod};

    fn field(message: &Message, name: &str) -> Option<(u32, Shape)> {
        message.0.iter().find(|(_, known, _)| *known == name).map(|(number, _, shape)| (*number, *shape))
    }

    fn part(message: &Message, name: &str) -> &'static Message {
        match field(message, name) {
            Some((_, Shape::Part(part) | Shape::Parts(part) | Shape::Inline(part))) => part,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn selected_fields_have_the_numbers_and_types_of_the_table() {
        let pod = Message::of(
            &Pod::RESOURCE,
            "spec { priority nodeName overhead volumes { name csi { driver } ephemeral { } } tolerations }
             status { startTime conditions { observedGeneration } containerStatuses { restartCount } }",
        );
        assert!(pod.0.iter().map(|(number, name, _)| (*number, *name)).eq([
            (1, "metadata"),
            (2, "spec"),
            (3, "status")
        ]));
        let (spec, status) = (part(&pod, "spec"), part(&pod, "status"));
        assert_eq!(spec.0.len(), 5);
        assert!(matches!(field(spec, "priority"), Some((25, Shape::Number))));
        assert!(matches!(field(spec, "nodeName"), Some((10, Shape::Text))));
        assert!(matches!(field(spec, "overhead"), Some((32, Shape::Quantities))));
        assert!(matches!(field(spec, "tolerations"), Some((22, Shape::Parts(all))) if all.0.len() == 5));
        let source = part(part(spec, "volumes"), "");
        assert_eq!(source.0.len(), 2);
        assert!(matches!(field(source, "ephemeral"), Some((29, Shape::Part(none))) if none.0.is_empty()));
        assert!(matches!(field(part(source, "csi"), "driver"), Some((1, Shape::Text))));
        assert!(matches!(field(status, "startTime"), Some((7, Shape::Time))));
        let (condition, container) = (part(status, "conditions"), part(status, "containerStatuses"));
        assert!(matches!(field(condition, "observedGeneration"), Some((7, Shape::Count))));
        assert!(matches!(field(container, "restartCount"), Some((5, Shape::Number))));
        assert!(field(part(&pod, "metadata"), "managedFields").is_none());
        let lease = Message::of(&Lease::RESOURCE, "spec { holderIdentity renewTime }");
        assert!(matches!(field(part(&lease, "spec"), "holderIdentity"), Some((1, Shape::TextIfSet))));
    }

    #[test]
    #[should_panic(expected = "core.v1.PodSpec has no field nodename")]
    fn unknown_field_is_refused() {
        let _ = Message::of(&Pod::RESOURCE, "spec { nodename }");
    }

    #[test]
    #[should_panic(expected = "projections do not read core.v1.TCPSocketAction.port")]
    fn type_that_is_not_decoded_is_refused() {
        let _ = Message::of(&Pod::RESOURCE, "spec { containers { livenessProbe { tcpSocket { port } } } }");
    }
}
