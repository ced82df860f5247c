//! Deletes of objects and of collections.

use http::Method;
use serde_json::{Value, json};

use super::{SequenceBuilder, ask};
use crate::sequence::Content;

impl SequenceBuilder<'_> {
    pub(super) fn delete(&mut self) {
        let object = self.object();
        let mut request = ask(Method::DELETE, &self.path(object), Content::Nothing);
        if self.percent_chance(60) {
            let options = self.delete_options(Some(object));
            request.content = Content::Json(options);
        } else if self.percent_chance(50) {
            request.query.push(match self.rng.u8(..6) {
                0 => ("dryRun", "All".to_owned()),
                1 => ("gracePeriodSeconds", self.one_of(&["0", "5", "-1", "x"]).to_owned()),
                2 => ("orphanDependents", "true".to_owned()),
                _ => (
                    "propagationPolicy",
                    self.one_of(&["Background", "Foreground", "Orphan", "Odd"]).to_owned(),
                ),
            });
        }
        self.push_about("delete", object, request);
    }

    fn delete_options(&mut self, object: Option<usize>) -> Value {
        let mut options = if self.percent_chance(50) {
            json!({})
        } else {
            json!({"apiVersion": "v1", "kind": "DeleteOptions"})
        };
        if self.percent_chance(45) {
            let policy =
                self.one_of(&["Background", "Foreground", "Orphan", "Background", "Foreground", "Odd"]);
            options["propagationPolicy"] = json!(policy);
        }
        if self.percent_chance(25) {
            options["gracePeriodSeconds"] = json!(self.one_of(&[0, 0, 1, 30, -1]));
        }
        if self.percent_chance(8) {
            options["dryRun"] = json!([self.one_of(&["All", "All", "Odd"])]);
        }
        if self.percent_chance(5) {
            options["orphanDependents"] = json!(self.one_of(&[true, false]));
        }
        if self.percent_chance(4) {
            options[self.one_of(&["unheardOf", "kind", "apiVersion"])] = json!("Odd");
        }
        if let Some(object) = object {
            if self.percent_chance(20) {
                let uid = self.reference(object, "/metadata/uid").filter(|_| self.percent_chance(70));
                options["preconditions"]["uid"] =
                    json!(uid.unwrap_or("00000000-0000-0000-0000-000000000000".to_owned()));
            }
            if self.percent_chance(15) {
                let version =
                    self.reference(object, "/metadata/resourceVersion").filter(|_| self.percent_chance(80));
                options["preconditions"]["resourceVersion"] = json!(version.unwrap_or("1".to_owned()));
            }
        }
        options
    }

    pub(super) fn delete_collection(&mut self) {
        let kind = self.kind();
        let mut request = ask(Method::DELETE, &kind.collection_path(), Content::Nothing);
        let mut labels = vec!["judge={ns}"];
        if self.percent_chance(40) {
            labels.push(self.one_of(&["app=a", "app!=a", "tier", "app in ("]));
        }
        request.query.push(("labelSelector", labels.join(",")));
        if self.percent_chance(20) {
            request.query.push((
                "fieldSelector",
                self.one_of(&["metadata.name=a", "metadata.name!=a", "nothing=1"]).to_owned(),
            ));
        }
        if self.percent_chance(40) {
            let options = self.delete_options(None);
            request.content = Content::Json(options);
        }
        let resource = kind.qualified();
        self.push("deletecollection", &resource, request);
    }
}
