//! The kinds of objects that the engine observes.

use jiff::Timestamp;
use keleustes_objects::{InternedStr, Key, Object, PersistentVolumeClaim, StorageClass};

use super::Engine;
use crate::projections::{Attachment, ConfigKind, ConfigMap, CsiDriver, Node, Pod, Secret, Volume};

/// An object that the engine observes.
pub(crate) trait Input: Object {
    /// Applies a complete list.
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp);
    /// Applies an added or updated object.
    fn observe(self, engine: &mut Engine, now: Timestamp);
    /// Applies a deleted object.
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp);
}

impl Input for Pod {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_pods(objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_pod(self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp) {
        engine.forget_pod(key, now);
    }
}

impl Input for Node {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_nodes(&objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_node(&self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp) {
        engine.forget_node(&InternedStr::from(&*key.name), now);
    }
}

impl Input for Volume {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_volumes(&objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_volume(&self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp) {
        engine.forget_volume(&key.name, now);
    }
}

impl Input for Attachment {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_attachments(&objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_attachment(&self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, _now: Timestamp) {
        engine.forget_attachment(&key.name);
    }
}

impl Input for CsiDriver {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_csi_drivers(&objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_csi_driver(&self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp) {
        engine.forget_csi_driver(&key.name, now);
    }
}

impl Input for PersistentVolumeClaim {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_claims(objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_claim(self, now);
    }
    fn forget(engine: &mut Engine, key: &Key, now: Timestamp) {
        engine.forget_claim(key, now);
    }
}

impl Input for StorageClass {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_classes(objects, now);
    }
    fn observe(self, engine: &mut Engine, _now: Timestamp) {
        engine.observe_class(self);
    }
    fn forget(engine: &mut Engine, key: &Key, _now: Timestamp) {
        engine.forget_class(&key.name);
    }
}

impl Input for ConfigMap {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_config_maps(objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_config(ConfigKind::ConfigMap, self.meta.key, self.entries, now);
    }
    fn forget(engine: &mut Engine, key: &Key, _now: Timestamp) {
        engine.forget_config(ConfigKind::ConfigMap, key);
    }
}

impl Input for Secret {
    fn replace(engine: &mut Engine, objects: Vec<Self>, now: Timestamp) {
        engine.replace_secrets(objects, now);
    }
    fn observe(self, engine: &mut Engine, now: Timestamp) {
        engine.observe_config(ConfigKind::Secret, self.meta.key, self.entries, now);
    }
    fn forget(engine: &mut Engine, key: &Key, _now: Timestamp) {
        engine.forget_config(ConfigKind::Secret, key);
    }
}
