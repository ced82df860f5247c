//! Objects of all kinds from JSON and from protobuf.

use std::fmt::Debug;

use keleustes_objects::protobuf::{self, Envelope, TranscodeError, WatchEvent};
use keleustes_objects::*;
use serde_json::Value;

use crate::transcription::transcribed;
use crate::{choice, text};

/// Calls a generic function for the chosen one of a list of kinds.
macro_rules! for_chosen_kind {
    ($choice:expr, $function:ident($input:expr), $($kind:ty,)*) => {{
        let functions = [$($function::<$kind> as fn(_),)*];
        functions[$choice % functions.len()]($input);
    }};
}

/// The first byte chooses the kind.
pub(crate) fn json(input: &[u8]) {
    let (kind, rest) = choice(input);
    let Some(text) = text(rest) else { return };
    for_chosen_kind!(
        kind,
        read_json(text),
        Pod,
        Node,
        Deployment,
        ReplicaSet,
        StatefulSet,
        DaemonSet,
        Job,
        CronJob,
        Service,
        EndpointSlice,
        Endpoints,
        PersistentVolume,
        PersistentVolumeClaim,
        ResourceClaim,
        ResourceSlice,
        ResourceQuota,
        HorizontalPodAutoscaler,
        PodDisruptionBudget,
        CertificateSigningRequest,
        ValidatingAdmissionPolicy,
        ClusterRole,
        Lease,
        Namespace,
        TokenSecret,
        BootstrapToken,
        ServiceAccount,
        ControllerRevision,
        CustomResourceDefinition,
        StorageVersion,
        StorageVersionMigration,
        StorageClass,
        VolumeAttachment,
        CsiDriver,
        CsiNode,
        ServiceCidr,
        IpAddress,
        DeviceTaintRule,
        PodGroup,
        Workload,
        PartialObjectMeta,
        ReplicationController,
        RootCaConfigMap,
        ClusterInfo,
        ResourceClaimTemplate,
        ResourcePoolStatusRequest,
        VolumeAttributesClass,
        EphemeralVolumesPod,
        DeviceClass,
    );
}

/// White space and the order of fields do not matter, and an error does not quote the object.
fn read_json<T: Object + Debug>(text: &str) {
    match Encoded::Json(text).read::<T>() {
        Err(error) => assert!(error.to_string().len() < 80, "{error}"),
        Ok(object) => {
            // `Value` refuses what the reader skips, such as a lone surrogate in a field that is not read.
            let Ok(value) = serde_json::from_str::<Value>(text) else { return };
            let again = Encoded::Json(&format!("{value:#}")).read::<T>();
            let again = again.unwrap_or_else(|error| panic!("{error} in the same object, respelled"));
            assert_eq!(format!("{:?}", object.meta()), format!("{:?}", again.meta()));
        }
    }
}

/// The first byte chooses the kind.
pub(crate) fn protobuf(input: &[u8]) {
    let (kind, rest) = choice(input);
    let _ = Envelope::open(rest);
    let _ = WatchEvent::read(rest);
    for_chosen_kind!(
        kind,
        read_protobuf(rest),
        Pod,
        Node,
        Deployment,
        ReplicaSet,
        EndpointSlice,
        Endpoints,
        Lease,
        PersistentVolume,
        PersistentVolumeClaim,
        StorageClass,
        VolumeAttachment,
        VolumeAttributesClass,
        CsiDriver,
        ResourceClaim,
        ResourceSlice,
        DeviceClass,
        DeviceTaintRule,
        PodGroup,
        PartialObjectMeta,
    );
}

/// The JSON of a message gives the same object as the message.
fn read_protobuf<T: Object + Debug>(bytes: &[u8]) {
    let object = Encoded::Protobuf(bytes).read::<T>();
    let json = match (T::MESSAGE, T::WHOLE) {
        (Some(message), _) => transcribed(bytes, message).map(|value| value.to_string()),
        (None, Some(message)) => match protobuf::to_json(bytes, message) {
            Ok(json) => {
                assert!(serde_json::from_str::<Value>(&json).is_ok(), "not JSON: {json}");
                Some(json)
            }
            Err(TranscodeError::Malformed(_) | TranscodeError::UnknownField) => None,
        },
        (None, None) => unreachable!("the kind has no schema"),
    };
    if let (Ok(object), Some(json)) = (object, json) {
        let again = Encoded::Json(&json).read::<T>();
        let again = again.unwrap_or_else(|error| panic!("{error} in JSON but not in protobuf: {json}"));
        assert_eq!(format!("{object:?}"), format!("{again:?}"), "{json}");
    }
}
