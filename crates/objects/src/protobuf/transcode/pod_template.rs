//! The schema of a pod template, derived from the table of its Go types.

use std::sync::LazyLock;

use super::{Field, FullMessage};
use crate::template::{Omit, Shape, pod_template_fields};

/// The message of a pod template.
pub(super) fn message() -> &'static FullMessage {
    static MESSAGE: LazyLock<&'static FullMessage> = LazyLock::new(|| Derived::default().message(0));
    &MESSAGE
}

/// The messages derived so far, by the index of their struct. They live as long as the process, as the other schemas do.
#[derive(Default)]
struct Derived(Vec<(usize, &'static FullMessage)>);

impl Derived {
    fn message(&mut self, index: usize) -> &'static FullMessage {
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == index) {
            return known;
        }
        let fields = pod_template_fields().part(index).fields.iter();
        let fields: Vec<_> = fields
            .map(|field| (field.number, field.json.unwrap_or_default(), self.field(field.omit, &field.shape)))
            // The name of an inlined struct does not appear in JSON.
            .map(|(number, name, field)| match (name, field) {
                ("", Field::Part(part)) => (number, name, Field::Inline(part)),
                named => (number, name, named.1),
            })
            .collect();
        let message: &'static FullMessage = Box::leak(Box::new(FullMessage(fields.leak())));
        self.0.push((index, message));
        message
    }

    fn field(&mut self, omit: Omit, shape: &Shape) -> Field {
        let is_omitted = omit != Omit::Never;
        match shape {
            Shape::Text if is_omitted => Field::Text,
            Shape::Text => Field::TextSet,
            Shape::Int if is_omitted => Field::Int,
            Shape::Int => Field::IntSet,
            Shape::Bool if is_omitted => Field::Bool,
            Shape::Bool => Field::BoolSet,
            Shape::Time => Field::Time,
            Shape::Quantity => Field::Quantity,
            Shape::IntOrString => Field::IntOrString,
            Shape::FieldsV1 => Field::RawJson,
            Shape::Struct(index) => Field::Part(self.message(*index)),
            // A pointer is encoded only if it is set, and then it is never omitted.
            Shape::Pointer(pointee) => self.field(Omit::Never, pointee),
            Shape::List(element) => match self.field(Omit::Never, element) {
                Field::Part(part) => Field::Parts(part),
                Field::IntSet => Field::Ints,
                _ => Field::Texts,
            },
            Shape::Map(value) => match **value {
                Shape::Quantity => Field::Quantities,
                _ => Field::Map,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (meta, spec) = (part(message(), "metadata"), part(message(), "spec"));
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
}
