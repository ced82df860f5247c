//! How long a lease lasts and how it is renewed, in proportions that rule out two leaders.

use std::time::Duration;

use keleustes_objects::Key;

/// How much longer than the retry period a standby waits at most, as a factor of it.
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// Which identity competes for which Lease, and at what times.
#[derive(Clone, Debug)]
pub struct LeaderElectionConfig {
    /// The Lease (`--leader-elect-resource-namespace`, `-name`).
    pub lease: Key,
    /// The holder identity; see [`identity`](super::identity()).
    pub identity: String,
    /// How long other processes must wait after the last observed renewal (`--leader-elect-lease-duration`).
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up (`--leader-elect-renew-deadline`).
    pub renew_deadline: Duration,
    /// The wait between tries (`--leader-elect-retry-period`).
    pub retry_period: Duration,
    /// Whether a graceful shutdown releases the Lease. The original has this behind a feature gate that is
    /// off.
    pub release_on_stop: bool,
    /// Whether the API server chooses the holder (feature gate `CoordinatedLeaderElection`), so that the
    /// Lease is only renewed here and never taken; see [`Candidate`](super::Candidate).
    pub coordinated: bool,
    /// Name and version of this program. If set, events and an annotation of the Lease name it, so that an operator can
    /// tell which of two programs leads.
    pub program: Option<String>,
}

impl LeaderElectionConfig {
    /// The original's defaults, and release on shutdown.
    #[must_use]
    pub fn new(identity: String) -> Self {
        Self {
            lease: Key::namespaced("kube-system", "kube-controller-manager"),
            identity,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
            coordinated: false,
            program: None,
        }
    }

    /// Checks the proportions between the durations.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), InvalidElectionConfig> {
        if self.lease_duration <= self.renew_deadline {
            Err(InvalidElectionConfig::LeaseTooShort)
        } else if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            Err(InvalidElectionConfig::DeadlineTooShort)
        } else if self.retry_period.is_zero() {
            Err(InvalidElectionConfig::NoRetryPeriod)
        } else if self.valid_for_others() < Duration::from_secs(1) {
            Err(InvalidElectionConfig::LeaseBelowTwoSeconds)
        } else {
            Ok(())
        }
    }

    /// The duration in whole seconds as the Lease stores it, which other processes use.
    #[must_use]
    pub fn lease_duration_seconds(&self) -> i64 {
        i64::try_from(self.lease_duration.as_secs()).unwrap_or(i64::MAX).min(i32::MAX.into())
    }

    /// How long after a renewal was sent no other process can take the lease, at least.
    ///
    /// That is the stored duration less one second: two renewals within one second of wall time look the same
    /// to other processes, which then count from the first of them.
    #[must_use]
    pub fn valid_for_others(&self) -> Duration {
        Duration::from_secs(self.lease_duration_seconds().unsigned_abs())
            .saturating_sub(Duration::from_secs(1))
    }

    /// How long the leader trusts a renewal: never longer than other processes wait.
    #[must_use]
    pub fn trusted_for(&self) -> Duration {
        self.renew_deadline.min(self.valid_for_others())
    }

    /// How long after a renewal was observed its sender may still write, if it is configured like this
    /// process: it waits one retry period, tries until its renew deadline, and other processes may have
    /// counted from a renewal within the same second.
    #[must_use]
    pub fn holder_may_write_for(&self) -> Duration {
        self.retry_period + self.renew_deadline + Duration::from_secs(1)
    }

    /// The timeout of one request: a renewal round must have time for two.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// A configuration that would allow two leaders, or that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidElectionConfig {
    /// A leader must give up before others may take over.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseTooShort,
    /// There must be time for a second try.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    DeadlineTooShort,
    /// Trying without a pause would flood the API server.
    #[error("retryPeriod must be greater than zero")]
    NoRetryPeriod,
    /// A Lease counts whole seconds, so others would see this one as expired before it could be trusted. The
    /// original accepts it and may then run two leaders.
    #[error("leaseDuration must be at least two seconds")]
    LeaseBelowTwoSeconds,
    /// A removed lock type, which the original knows only to refuse it.
    #[error("endpoints lock is removed, migrate to leases")]
    EndpointsLock,
    /// An unknown lock type.
    #[error("Invalid lock-type {0}")]
    UnknownLock(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lease: u64, deadline: u64, retry: u64) -> LeaderElectionConfig {
        LeaderElectionConfig {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
            ..LeaderElectionConfig::new("me".to_owned())
        }
    }

    /// Proves LE-1, LE-6.
    #[test]
    fn durations_that_allow_two_leaders_are_refused_in_order() {
        let defaults = LeaderElectionConfig::new("me".to_owned());
        assert_eq!(defaults.validate(), Ok(()));
        assert_eq!(defaults.lease.to_string(), "kube-system/kube-controller-manager");
        let durations = [defaults.lease_duration, defaults.renew_deadline, defaults.retry_period];
        assert_eq!(durations.map(|duration| duration.as_secs()), [15, 10, 2]);
        let rows = [
            ((15_000, 15_000, 2_000), "leaseDuration must be greater than renewDeadline"),
            ((1_000, 2_000, 9_000), "leaseDuration must be greater than renewDeadline"),
            ((15_000, 2_400, 2_000), "renewDeadline must be greater than retryPeriod*JitterFactor"),
            ((15_000, 10_000, 0), "retryPeriod must be greater than zero"),
            ((0, 0, 0), "leaseDuration must be greater than renewDeadline"),
            ((1_000, 0, 0), "renewDeadline must be greater than retryPeriod*JitterFactor"),
            ((900, 800, 100), "leaseDuration must be at least two seconds"),
            ((1_999, 1_000, 100), "leaseDuration must be at least two seconds"),
        ];
        for ((lease, deadline, retry), message) in rows {
            let error = config(lease, deadline, retry).validate().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    /// Proves LE-107.
    #[test]
    fn stored_duration_bounds_how_long_the_leader_trusts_its_lease() {
        let defaults = LeaderElectionConfig::new("me".to_owned());
        assert_eq!(
            (defaults.lease_duration_seconds(), defaults.trusted_for()),
            (15, Duration::from_secs(10))
        );
        assert_eq!(defaults.request_timeout(), Duration::from_secs(5));
        let fraction = config(2_900, 2_800, 200);
        assert_eq!((fraction.lease_duration_seconds(), fraction.trusted_for()), (2, Duration::from_secs(1)));
        assert_eq!(fraction.request_timeout(), Duration::from_millis(1_400));
        assert_eq!(config(3_000, 1_500, 200).request_timeout(), Duration::from_secs(1));
    }
}
