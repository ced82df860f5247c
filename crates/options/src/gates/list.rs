//! The feature gates of v1.37 and their state in the releases that can be emulated.

/// A feature gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// The state in 1.34, 1.35, 1.36 and 1.37.
    pub(crate) by_release: [State; 4],
    /// What it does in this manager.
    pub(crate) effect: GateEffect,
}

/// What a feature gate does in this manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEffect {
    /// It changes what this manager does, or which flags it accepts.
    Obeyed,
    /// Nothing, neither here nor in the original's manager: another component reads it.
    OtherComponent,
    /// Nothing until this controller is implemented.
    Controller(&'static str),
    /// Nothing: this manager behaves as if the gate had this value. Another value is warned about, with the reason.
    Fixed(bool, &'static str),
}

/// The state of a gate in one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) stage: FeatureStage,
    pub(crate) default: bool,
    pub(crate) locked: bool,
}

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureStage {
    /// The gate does not exist yet.
    PreAlpha,
    /// Alpha.
    Alpha,
    /// Beta.
    Beta,
    /// GA; the gate will be removed.
    Stable,
    /// Deprecated; the feature will be removed.
    Deprecated,
}

impl FeatureStage {
    /// The name in metrics and help; empty for GA.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreAlpha => "PRE-ALPHA",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// The minor version of the first column.
pub(crate) const FIRST_MINOR: u64 = 34;

// Letter: stage. Digit: default. L: locked to it.
const NO: State = state(FeatureStage::PreAlpha, false, false);
const A0: State = state(FeatureStage::Alpha, false, false);
const B0: State = state(FeatureStage::Beta, false, false);
const B1: State = state(FeatureStage::Beta, true, false);
const G0: State = state(FeatureStage::Stable, false, false);
const G1: State = state(FeatureStage::Stable, true, false);
const G1L: State = state(FeatureStage::Stable, true, true);
const D0: State = state(FeatureStage::Deprecated, false, false);
const D1: State = state(FeatureStage::Deprecated, true, false);
const D0L: State = state(FeatureStage::Deprecated, false, true);
const D1L: State = state(FeatureStage::Deprecated, true, true);

const fn state(stage: FeatureStage, default: bool, locked: bool) -> State {
    State { stage, default, locked }
}

const fn gate(name: &'static str, by_release: [State; 4], effect: GateEffect) -> Gate {
    Gate { name, by_release, effect }
}

const OBEYED: GateEffect = GateEffect::Obeyed;
const OTHER: GateEffect = GateEffect::OtherComponent;

const fn always_on(reason: &'static str) -> GateEffect {
    GateEffect::Fixed(true, reason)
}

const fn always_off(reason: &'static str) -> GateEffect {
    GateEffect::Fixed(false, reason)
}

/// A gate whose default differs from this minimum compatibility version on: name, minor version, default.
pub(crate) const BY_COMPATIBILITY: (&str, u64, bool) = ("DRAFractionalCapacityRange", 37, true);

/// All gates, by name.
pub(crate) const GATES: &[Gate] = &[
    gate("APIResponseCompression", [B1, B1, B1, B1], OTHER),
    // What needs it in this manager, StorageVersionAPI, is refused without it.
    gate("APIServerIdentity", [B1, B1, B1, B1], OTHER),
    gate("APIServerWebhookAuthenticationToken", [NO, NO, NO, A0], OTHER),
    gate("APIServingWithRoutine", [A0, A0, A0, A0], OTHER),
    gate("AggregatedDiscoveryRemoveBetaType", [D1, D1L, D1L, D1L], OTHER),
    gate("AllAlpha", [A0, A0, A0, A0], OBEYED),
    gate("AllBeta", [B0, B0, B0, B0], OBEYED),
    gate("AllowDNSOnlyNodeCSR", [D0, D0, D0, D0], OTHER),
    gate("AllowInsecureKubeletCertificateSigningRequests", [D0, D0, D0, D0], OTHER),
    gate("AllowOverwriteTerminationGracePeriodSeconds", [D0, D0L, D0L, D0L], OTHER),
    gate(
        "AllowParsingUserUIDFromCertAuth",
        [B1, B1, B1, B1],
        always_on("a client certificate's UID is always read"),
    ),
    gate("AllowServiceExternalIPs", [G1, G1, G1, G1], OTHER),
    gate("AllowUnsafeMalformedObjectDeletion", [A0, A0, A0, B1], OTHER),
    gate("AtomicFIFO", [NO, NO, B1, B1], always_on("caches apply each list as one change")),
    gate("AtomicWriteVolumeUserFields", [NO, NO, NO, A0], OTHER),
    gate("AuthorizePodWebsocketUpgradeCreatePermission", [NO, B1, B1, B1], OTHER),
    gate("CBORServingAndStorage", [A0, A0, A0, A0], always_off("pages are not served as CBOR")),
    gate("CPUManagerPolicyAlphaOptions", [A0, A0, A0, A0], OTHER),
    gate("CPUManagerPolicyBetaOptions", [B1, B1, B1, B1], OTHER),
    gate("CPUManagerPolicyOptions", [G1L, G1L, G1L, G1L], OTHER),
    gate("CRDObservedGenerationTracking", [NO, B0, B1, B1], OTHER),
    gate("CRDValidationRatcheting", [G1L, G1L, G1L, G1L], OTHER),
    gate("CRIListStreaming", [NO, NO, A0, A0], OTHER),
    gate("CSIServiceAccountTokenSecrets", [NO, B1, G1L, G1L], OTHER),
    gate("CSIVolumeHealth", [A0, A0, A0, A0], OTHER),
    gate("ChangeContainerStatusOnKubeletRestart", [G1, D0, D0, D0], OTHER),
    gate("ClearingNominatedNodeNameAfterBinding", [A0, B1, B1, B1], OTHER),
    gate("ClientsAllowCARotation", [NO, NO, B1, B1], always_on("CA files are always read again")),
    gate("ClientsAllowCBOR", [A0, A0, A0, A0], always_off("requests and responses are never CBOR")),
    gate(
        "ClientsAllowTLSCacheGC",
        [NO, NO, B1, B1],
        always_on("a transport is dropped with its last client"),
    ),
    gate("ClientsPreferCBOR", [A0, A0, A0, A0], always_off("requests and responses are never CBOR")),
    gate("CloudControllerManagerWatchBasedRoutesReconciliation", [NO, A0, A0, A0], OTHER),
    gate("CloudControllerManagerWebhook", [A0, A0, A0, A0], OTHER),
    gate("ClusterTrustBundle", [B0, B0, B0, G1], OBEYED),
    gate("ClusterTrustBundleProjection", [B0, B0, B0, G1], OTHER),
    gate("ComponentFlagz", [A0, A0, B1, B1], OBEYED),
    gate("ComponentStatusz", [A0, A0, B1, B1], OBEYED),
    gate("CompositePodGroup", [NO, NO, NO, A0], OTHER),
    gate("ConcurrentWatchObjectDecode", [B0, B0, B0, B1], OTHER),
    gate("ConsistentListFromCacheSkipTimeoutFallback", [NO, NO, NO, A0], OTHER),
    gate("ConstrainedImpersonation", [NO, A0, B1, B1], OTHER),
    gate("ContainerCheckpoint", [B1, B1, B1, B1], OTHER),
    gate("ContainerRestartRules", [A0, B1, B1, B1], OTHER),
    gate("ContainerStopSignals", [A0, A0, A0, A0], OTHER),
    gate("ContextualLogging", [B1, B1, B1, B1], always_on("log lines always carry their context")),
    gate("ControllerManagerReleaseLeaderElectionLockOnExit", [NO, NO, A0, A0], OBEYED),
    gate("CoordinatedLeaderElection", [B0, B0, B0, B0], OBEYED),
    gate("CrossNamespaceVolumeDataSource", [A0, A0, A0, A0], OTHER),
    gate("CustomCPUCFSQuotaPeriod", [A0, A0, G1, G1], OTHER),
    gate("CustomResourceFieldSelectors", [G1L, G1L, G1L, G1L], OTHER),
    gate("DRAAdminAccess", [B1, B1, G1L, G1L], OBEYED),
    gate("DRAConsumableCapacity", [A0, A0, B1, B1], OTHER),
    gate("DRADerivedAttributes", [NO, NO, NO, A0], OTHER),
    gate("DRADeviceBindingConditions", [A0, A0, B1, B1], OTHER),
    gate("DRADeviceCompatibilityGroups", [NO, NO, NO, A0], OTHER),
    gate("DRADeviceTaintRules", [NO, A0, B0, G1], OBEYED),
    gate("DRADeviceTaints", [A0, A0, B1, G1], OBEYED),
    gate(
        "DRAExtendedResource",
        [A0, A0, B1, G1L],
        always_on("quotas always count devices that extended resources stand for"),
    ),
    gate("DRAFractionalCapacityRange", [NO, NO, NO, B0], OTHER),
    gate("DRAListTypeAttributes", [NO, NO, A0, A0], OTHER),
    gate("DRANodeAllocatableResources", [NO, NO, A0, A0], OTHER),
    gate("DRAOptionalNodeOperations", [NO, NO, NO, A0], OTHER),
    gate("DRAPartitionableDevices", [A0, A0, B1, B1], OTHER),
    gate("DRAPartitionableDevicesType", [NO, NO, NO, A0], OTHER),
    gate("DRAPrioritizedList", [B1, B1, G1, G1L], OBEYED),
    gate("DRAResourceClaimDeviceStatus", [B1, B1, B1, G1L], OTHER),
    gate("DRAResourceClaimGranularStatusAuthorization", [NO, NO, B1, B1], OTHER),
    gate("DRAResourcePoolStatus", [NO, NO, A0, A0], OBEYED),
    gate("DRASchedulerFilterTimeout", [B1, B1, B1, B1], OTHER),
    gate("DRAWorkloadResourceClaims", [NO, NO, A0, B0], OBEYED),
    gate("DeclarativeValidation", [B1, B1, G1L, G1L], OTHER),
    gate("DeclarativeValidationBeta", [NO, NO, B1, B1], OTHER),
    gate("DeclarativeValidationTakeover", [B0, B0, D0, D0L], OTHER),
    gate("DefaultPodSysctls", [NO, NO, NO, A0], OTHER),
    gate("DeploymentReplicaSetTerminatingReplicas", [A0, B1, B1, B1], OBEYED),
    gate("DetectCacheInconsistency", [B1, B1, B1, B1], OTHER),
    gate("DisableAllocatorDualWrite", [G1, G1L, G1L, G1L], OTHER),
    gate("DisableCPUQuotaWithExclusiveCPUs", [B1, B1, D1, D1L], OTHER),
    gate("DisableNodeKubeProxyVersion", [D1, D1, D1L, D1L], OTHER),
    gate("DynamicResourceAllocation", [G1, G1L, G1L, G1L], OBEYED),
    gate("EmptyDirVolumeMode", [NO, NO, NO, A0], OTHER),
    gate("EnvFiles", [A0, B1, B1, B1], OTHER),
    gate("EtcdRangeStream", [NO, NO, NO, B1], OTHER),
    gate("EventedPLEG", [A0, A0, A0, A0], OTHER),
    gate("EvictionRequestAPI", [NO, NO, NO, A0], OTHER),
    gate("ExcludeAdmissionWebhookVirtualResources", [NO, NO, NO, B1], OTHER),
    gate("ExecProbeTimeout", [G1, G1L, G1L, G1L], OTHER),
    gate("ExtendWebSocketsToKubelet", [NO, NO, B1, B1], OTHER),
    gate("ExternalServiceAccountTokenSigner", [B1, B1, G1L, G1L], OTHER),
    gate("GRPCContainerProbeTLS", [NO, NO, NO, A0], OTHER),
    gate("GenericWorkload", [NO, A0, A0, B0], OBEYED),
    gate("GitRepoVolumeDriver", [D0, D0, D0L, D0L], OTHER),
    gate("GracefulNodeShutdown", [B1, B1, B1, B1], OTHER),
    gate("GracefulNodeShutdownBasedOnPodPriority", [B1, B1, B1, B1], OTHER),
    gate("H2CContainerProbe", [NO, NO, NO, A0], OTHER),
    gate(
        "HPAConfigurableTolerance",
        [A0, B1, B1, G1L],
        always_on("the tolerance of an autoscaler is always honored"),
    ),
    gate("HPAGeneration", [NO, NO, NO, B1], OBEYED),
    gate("HPAOptimizedSelectorStore", [NO, NO, NO, B1], OBEYED),
    gate("HPAScaleToZero", [A0, A0, A0, B1], OBEYED),
    gate("HostnameOverride", [A0, B1, B1, G1L], OTHER),
    gate("HugepageAwareEviction", [NO, NO, NO, B1], OTHER),
    gate("ImageMaximumGCAge", [B1, G1L, G1L, G1L], OTHER),
    gate("ImageVolume", [B0, B1, G1L, G1L], OTHER),
    gate("ImageVolumeWithDigest", [NO, A0, A0, A0], OTHER),
    gate("InOrderInformers", [B1, B1, G1L, G1L], always_on("watch events are always handled in order")),
    gate(
        "InOrderInformersBatchProcess",
        [NO, B1, B1, B1],
        always_on("watch events are handled where they are read, without a queue"),
    ),
    gate("InPlacePodLevelResourcesVerticalScaling", [NO, A0, B1, B1], OTHER),
    gate(
        "InPlacePodVerticalScaling",
        [B1, G1L, G1L, G1L],
        always_on("quotas always count what containers were given"),
    ),
    gate("InPlacePodVerticalScalingExclusiveCPUs", [A0, A0, A0, A0], OTHER),
    gate("InPlacePodVerticalScalingExclusiveMemory", [A0, A0, A0, A0], OTHER),
    gate("InPlacePodVerticalScalingInitContainers", [NO, NO, B1, G1L], OTHER),
    gate("InPlacePodVerticalScalingMemoryBackedVolumes", [NO, NO, NO, A0], OTHER),
    gate("InPlacePodVerticalScalingSchedulerPreemption", [NO, NO, NO, A0], OTHER),
    gate("InformerResourceVersion", [A0, G1, G1, G1], OBEYED),
    gate("InterPodAffinityHostnameFastPath", [NO, NO, NO, A0], OTHER),
    gate("JobManagedBy", [B1, G1L, G1L, G1L], OBEYED),
    gate("KMSv1", [D0, D0, D0, D0], OTHER),
    gate("KubeProxyIPVS", [G1, G1, G1, D1], OTHER),
    gate("KubeProxyNFTablesLocalhostNodePorts", [NO, NO, NO, A0], OTHER),
    gate("KubeletAllocatedPodsEndpoint", [NO, NO, NO, A0], OTHER),
    gate("KubeletCgroupDriverFromCRI", [G1L, G1L, G1L, G1L], OTHER),
    gate("KubeletCrashLoopBackOffMax", [A0, B1, B1, B1], OTHER),
    gate("KubeletEnsureSecretPulledImages", [A0, B1, B1, B1], OTHER),
    gate("KubeletFineGrainedAuthz", [B1, B1, G1L, G1L], OTHER),
    gate("KubeletInUserNamespace", [A0, A0, A0, B1], OTHER),
    gate("KubeletPSI", [B1, B1, G1L, G1L], OTHER),
    gate("KubeletPodResourcesDynamicResources", [B1, B1, G1L, G1L], OTHER),
    gate("KubeletPodResourcesGet", [B1, B1, G1L, G1L], OTHER),
    gate("KubeletPodResourcesListUseActivePods", [D1, D1, D1, D1], OTHER),
    gate("KubeletRegistrationGetOnExistsOnly", [D0, D0, D0, D0], OTHER),
    gate("KubeletSeparateDiskGC", [B1, B1, B1, B1], OTHER),
    gate("KubeletServiceAccountTokenForCredentialProviders", [B1, B1, B1, B1], OTHER),
    gate("KubeletTracing", [G1L, G1L, G1L, G1L], OTHER),
    gate("ListFromCacheSnapshot", [B1, B1, B1, B1], OTHER),
    gate("LocalStorageCapacityIsolationFSQuotaMonitoring", [B0, B0, B0, B0], OTHER),
    gate("LoggingAlphaOptions", [A0, A0, A0, A0], OBEYED),
    gate("LoggingBetaOptions", [B1, B1, B1, B1], OBEYED),
    gate("ManifestBasedAdmissionControlConfig", [NO, NO, A0, B1], OTHER),
    gate("MatchLabelKeysInPodAffinity", [G1L, G1L, G1L, G1L], OTHER),
    gate("MatchLabelKeysInPodTopologySpread", [B1, B1, B1, B1], OTHER),
    gate("MatchLabelKeysInPodTopologySpreadSelectorMerge", [B1, B1, B1, B1], OTHER),
    gate("MaxUnavailableStatefulSet", [A0, B0, B0, B1], OBEYED),
    gate("MemoryQoS", [A0, A0, A0, B1], OTHER),
    gate("MultiCIDRServiceAllocator", [G1L, G1L, G1L, G1L], OTHER),
    gate("MutableCSINodeAllocatableCount", [B0, B1, G1L, G1L], OTHER),
    gate("MutablePVNodeAffinity", [NO, A0, A0, A0], OTHER),
    gate("MutablePodResourcesForSuspendedJobs", [NO, A0, B1, B1], OTHER),
    gate("MutableSchedulingDirectivesForSuspendedJobs", [NO, A0, B1, B1], OBEYED),
    gate("MutatingAdmissionPolicy", [B0, B0, G1, G1], OTHER),
    gate("NFTablesNetlink", [NO, NO, NO, B1], OTHER),
    gate("NFTablesProxyMode", [G1L, G1L, G1L, G1L], OTHER),
    gate("NativeHistograms", [NO, NO, A0, B1], always_off("histograms have classic buckets only")),
    gate("NodeControllerLeaseCircuitBreaker", [NO, NO, NO, B1], OBEYED),
    gate("NodeDeclaredFeatures", [NO, A0, B1, G1L], OTHER),
    gate("NodeInclusionPolicyInPodTopologySpread", [G1L, G1L, G1L, G1L], OTHER),
    gate("NodeLifecycleConditions", [NO, NO, NO, A0], OTHER),
    gate("NodeLogQuery", [B0, B0, G1L, G1L], OTHER),
    gate("NodeSwap", [G1L, G1L, G1L, G1L], OTHER),
    gate("NominatedNodeNameForExpectation", [A0, B1, B1, B1], OTHER),
    gate("OpenAPIEnums", [B1, B1, B1, B1], OTHER),
    gate("OpportunisticBatching", [NO, B1, B1, B1], OTHER),
    gate("PLEGOnDemandRelist", [NO, NO, B1, G1L], OTHER),
    gate("PersistentVolumeClaimUnusedSinceTime", [NO, NO, A0, B1], OBEYED),
    gate("PodAndContainerStatsFromCRI", [A0, A0, A0, B0], OTHER),
    gate("PodCertificateRequest", [A0, B0, B0, G1], OBEYED),
    gate("PodDeletionCost", [B1, B1, B1, B1], OBEYED),
    gate("PodGroupPreemptionPolicy", [NO, NO, NO, A0], OTHER),
    gate("PodLevelResourceManagers", [NO, NO, A0, B0], OTHER),
    gate("PodLevelResources", [B1, B1, B1, B1], OBEYED),
    gate("PodLevelResourcesFixDefaulting", [NO, NO, NO, B1], OTHER),
    gate("PodLevelResourcesFixKubeletQOSClass", [NO, NO, NO, B1], OTHER),
    gate("PodLogsQuerySplitStreams", [A0, A0, A0, A0], OTHER),
    gate(
        "PodObservedGenerationTracking",
        [B1, G1L, G1L, G1L],
        always_on("the condition DisruptionTarget always has an observedGeneration"),
    ),
    gate("PodReadyToStartContainersCondition", [B1, B1, B1, G1L], OTHER),
    gate("PodSchedulingReadiness", [G1L, G1L, G1L, G1L], OTHER),
    gate("PodTopologyLabelsAdmission", [A0, B1, B1, B1], OTHER),
    gate("PodsAPI", [NO, NO, A0, B1], OTHER),
    gate("PortForwardWebsockets", [B1, B1, B1, B1], OTHER),
    gate(
        "PreferSameTrafficDistribution",
        [B1, G1L, G1L, G1L],
        always_on("PreferSameZone and PreferSameNode always set hints"),
    ),
    gate("ProcMountType", [B1, B1, G1L, G1L], OTHER),
    gate("QOSReserved", [A0, A0, A0, A0], OTHER),
    gate("RecoverVolumeExpansionFailure", [G1L, G1L, G1L, G1L], OTHER),
    gate("RecursiveReadOnlyMounts", [G1L, G1L, G1L, G1L], OTHER),
    gate("ReduceDefaultCrashLoopBackOffDecay", [A0, A0, A0, A0], OTHER),
    gate("RelaxedEnvironmentVariableValidation", [G1L, G1L, G1L, G1L], OTHER),
    gate("RelaxedServiceNameValidation", [A0, A0, B1, G1L], OTHER),
    gate("ReloadKubeletClientCAFile", [NO, NO, B1, B1], OTHER),
    gate("ReloadKubeletServerCertificateFile", [B1, B1, B1, B1], OTHER),
    gate("RemoteRequestHeaderUID", [B1, B1, B1, B1], OBEYED),
    gate("ResourceHealthStatus", [A0, A0, B1, B1], OTHER),
    gate("ResourceHealthStatusMessage", [NO, NO, B1, B1], OTHER),
    gate("RestartAllContainersOnContainerExits", [NO, A0, B1, B1], OTHER),
    gate("RotateKubeletServerCertificate", [B1, B1, B1, B1], OTHER),
    gate("RuntimeClassInImageCriApi", [A0, A0, A0, A0], OTHER),
    gate("SELinuxChangePolicy", [B1, B1, G1L, G1L], OBEYED),
    gate("SELinuxMount", [B0, B0, B0, G1], OTHER),
    gate("SELinuxMountReadWriteOncePod", [B1, B1, G1L, G1L], OBEYED),
    gate("SchedulerAsyncAPICalls", [B0, B0, B0, B0], OTHER),
    gate("SchedulerAsyncPreemption", [B1, B1, B1, B1], OTHER),
    gate("SchedulerPopFromBackoffQ", [B1, B1, B1, B1], OTHER),
    gate("SchedulerPreQueueingHints", [NO, NO, NO, A0], OTHER),
    gate("SeparateCacheWatchRPC", [D0, D0, D0L, D0L], OTHER),
    gate(
        "SeparateTaintEvictionController",
        [G1L, G1L, G1L, G1L],
        always_on("taint eviction is always a controller of its own"),
    ),
    gate("ServiceAccountNodeAudienceRestriction", [B1, B1, B1, B1], OTHER),
    gate("ServiceAccountTokenJTI", [G1L, G1L, G1L, G1L], OTHER),
    gate("ServiceAccountTokenNodeBinding", [G1L, G1L, G1L, G1L], OTHER),
    gate("ServiceAccountTokenNodeBindingValidation", [G1L, G1L, G1L, G1L], OTHER),
    gate("ServiceAccountTokenPodNodeInfo", [G1L, G1L, G1L, G1L], OTHER),
    gate("ServiceCIDRStatusFieldWiping", [G0, G0, D1, D1], OTHER),
    gate("ShardedListAndWatch", [NO, NO, A0, A0], OTHER),
    gate("SizeBasedListCostEstimate", [B1, B1, B1, B1], OTHER),
    gate(
        "StaleControllerConsistencyDaemonSet",
        [NO, NO, B1, B1],
        always_on("a key always waits until the caches contain its last write"),
    ),
    gate(
        "StaleControllerConsistencyHPA",
        [NO, NO, NO, B1],
        always_on("a key always waits until the caches contain its last write"),
    ),
    gate(
        "StaleControllerConsistencyJob",
        [NO, NO, B1, B1],
        always_on("a key always waits until the caches contain its last write"),
    ),
    gate(
        "StaleControllerConsistencyReplicaSet",
        [NO, NO, B1, B1],
        always_on("a key always waits until the caches contain its last write"),
    ),
    gate(
        "StaleControllerConsistencyStatefulSet",
        [NO, NO, B1, B1],
        always_on("a key always waits until the caches contain its last write"),
    ),
    gate("StatefulSetRecreateStrategy", [NO, NO, NO, A0], OBEYED),
    gate("StatefulSetSemanticRevisionComparison", [B1, B1, B1, B1], OBEYED),
    gate("StorageCapacityScoring", [A0, A0, A0, B1], OTHER),
    gate("StorageNamespaceIndex", [D1, D1, D1, D1], OTHER),
    gate("StorageVersionAPI", [A0, A0, A0, A0], OBEYED),
    gate("StorageVersionHash", [B1, B1, B1, B1], OTHER),
    gate("StorageVersionMigrator", [A0, B0, B0, G1], OBEYED),
    gate("StrictIPCIDRValidation", [A0, A0, B1, B1], OTHER),
    gate("StructuredAuthenticationConfigurationEgressSelector", [B1, B1, B1, B1], OTHER),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", [NO, B1, B1, B1], OTHER),
    gate("SupplementalGroupsPolicy", [B1, G1L, G1L, G1L], OTHER),
    gate("SystemdWatchdog", [B1, G1L, G1L, G1L], OTHER),
    gate("TaintTolerationComparisonOperators", [NO, A0, A0, A0], OBEYED),
    gate("TokenRequestServiceAccountUIDValidation", [B1, B1, B1, B1], OTHER),
    gate("TopologyAwareWorkloadScheduling", [NO, NO, A0, A0], OTHER),
    gate("TopologyManagerPolicyAlphaOptions", [A0, A0, A0, A0], OTHER),
    gate("TopologyManagerPolicyBetaOptions", [B1, B1, B1, B1], OTHER),
    gate("TopologyManagerPolicyOptions", [G1L, G1L, G1L, G1L], OTHER),
    gate("TranslateStreamCloseWebsocketRequests", [B1, B1, B1, B1], OTHER),
    gate("UnauthenticatedHTTP2DOSMitigation", [B1, B1, B1, B1], OBEYED),
    gate("UnknownVersionInteroperabilityProxy", [A0, A0, B1, B1], OTHER),
    gate(
        "UnlockWhileProcessingFIFO",
        [NO, NO, B1, B1],
        always_on("watch events are handled where they are read, without a queue"),
    ),
    gate("UserNamespacesHostNetworkSupport", [NO, A0, A0, A0], OTHER),
    gate("UserNamespacesSupport", [B1, B1, G1L, G1L], OTHER),
    gate("VolumeAttributesClass", [G1, G1, G1L, G1L], OBEYED),
    gate("VolumeBindMountOptions", [NO, NO, NO, A0], OTHER),
    gate("VolumeLimitScaling", [NO, A0, A0, B1], OTHER),
    gate("WatchCacheInitializationPostStartHook", [B0, B0, B1, G1L], OTHER),
    gate("WatchList", [B1, B1, B1, B1], OTHER),
    gate("WatchListClient", [B0, B1, B1, B1], OBEYED),
    gate("WatchListCompression", [NO, NO, NO, B1], OTHER),
    gate("WebhookRoundTripLoadBalancing", [NO, NO, NO, B1], OTHER),
    gate("WinDSR", [G1L, G1L, G1L, G1L], OTHER),
    gate("WinOverlay", [G1L, G1L, G1L, G1L], OTHER),
    gate("WindowsCPUAndMemoryAffinity", [A0, A0, A0, A0], OTHER),
    gate("WindowsGracefulNodeShutdown", [B1, B1, B1, B1], OTHER),
    gate("WindowsHostNetwork", [D0, D0, D0, D0], OTHER),
    gate("WorkloadWithJob", [NO, NO, A0, A0], OBEYED),
];

/// Gates that make no sense without others.
pub(crate) const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("ClusterTrustBundleProjection", &["ClusterTrustBundle"]),
    ("CompositePodGroup", &["GenericWorkload", "TopologyAwareWorkloadScheduling"]),
    ("DRAAdminAccess", &["DynamicResourceAllocation"]),
    ("DRAConsumableCapacity", &["DynamicResourceAllocation"]),
    ("DRADerivedAttributes", &["DynamicResourceAllocation"]),
    ("DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"]),
    ("DRADeviceCompatibilityGroups", &["DRAPartitionableDevices", "DynamicResourceAllocation"]),
    ("DRADeviceTaintRules", &["DRADeviceTaints"]),
    ("DRADeviceTaints", &["DynamicResourceAllocation"]),
    ("DRAExtendedResource", &["DynamicResourceAllocation"]),
    ("DRAFractionalCapacityRange", &["DRAConsumableCapacity"]),
    ("DRAListTypeAttributes", &["DynamicResourceAllocation"]),
    ("DRANodeAllocatableResources", &["DynamicResourceAllocation"]),
    ("DRAOptionalNodeOperations", &["DynamicResourceAllocation", "NodeDeclaredFeatures"]),
    ("DRAPartitionableDevices", &["DynamicResourceAllocation"]),
    (
        "DRAPartitionableDevicesType",
        &["DRAPartitionableDevices", "DRAResourcePoolStatus", "DynamicResourceAllocation"],
    ),
    ("DRAPrioritizedList", &["DynamicResourceAllocation"]),
    (
        "DRAResourceClaimGranularStatusAuthorization",
        &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"],
    ),
    ("DRAResourcePoolStatus", &["DynamicResourceAllocation"]),
    ("DRASchedulerFilterTimeout", &["DynamicResourceAllocation"]),
    ("DRAWorkloadResourceClaims", &["DynamicResourceAllocation", "GenericWorkload"]),
    ("DeclarativeValidationBeta", &["DeclarativeValidation"]),
    ("DeclarativeValidationTakeover", &["DeclarativeValidation"]),
    ("DisableAllocatorDualWrite", &["MultiCIDRServiceAllocator"]),
    ("EventedPLEG", &["PLEGOnDemandRelist"]),
    ("ExtendWebSocketsToKubelet", &["NodeDeclaredFeatures"]),
    ("GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"]),
    ("H2CContainerProbe", &["NodeDeclaredFeatures"]),
    ("ImageVolumeWithDigest", &["ImageVolume"]),
    (
        "InPlacePodLevelResourcesVerticalScaling",
        &["InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources"],
    ),
    ("InPlacePodVerticalScalingExclusiveCPUs", &["InPlacePodVerticalScaling"]),
    ("InPlacePodVerticalScalingExclusiveMemory", &["InPlacePodVerticalScaling"]),
    ("InPlacePodVerticalScalingInitContainers", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"]),
    ("InPlacePodVerticalScalingMemoryBackedVolumes", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"]),
    ("InPlacePodVerticalScalingSchedulerPreemption", &["InPlacePodVerticalScaling"]),
    ("KubeletAllocatedPodsEndpoint", &["InPlacePodVerticalScaling"]),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"]),
    ("NodeControllerLeaseCircuitBreaker", &["AtomicFIFO"]),
    ("PodGroupPreemptionPolicy", &["GenericWorkload"]),
    ("PodLevelResourceManagers", &["PodLevelResources"]),
    ("PodLevelResourcesFixDefaulting", &["PodLevelResources"]),
    ("PodLevelResourcesFixKubeletQOSClass", &["PodLevelResources"]),
    ("ProcMountType", &["UserNamespacesSupport"]),
    ("ResourceHealthStatus", &["DynamicResourceAllocation"]),
    ("ResourceHealthStatusMessage", &["ResourceHealthStatus"]),
    ("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    ("ServiceAccountTokenNodeBinding", &["ServiceAccountTokenNodeBindingValidation"]),
    ("StaleControllerConsistencyDaemonSet", &["AtomicFIFO"]),
    ("StaleControllerConsistencyHPA", &["AtomicFIFO"]),
    ("StaleControllerConsistencyJob", &["AtomicFIFO"]),
    ("StaleControllerConsistencyReplicaSet", &["AtomicFIFO"]),
    ("StaleControllerConsistencyStatefulSet", &["AtomicFIFO"]),
    ("StorageVersionAPI", &["APIServerIdentity"]),
    ("TopologyAwareWorkloadScheduling", &["GenericWorkload"]),
    ("UnknownVersionInteroperabilityProxy", &["APIServerIdentity"]),
    ("UserNamespacesHostNetworkSupport", &["NodeDeclaredFeatures", "UserNamespacesSupport"]),
    ("WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"]),
    ("WorkloadWithJob", &["GenericWorkload"]),
];
