//! What happens to the control plane and to the leader while users work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keleustes_control_plane::{ControlPlane, Stop};

use super::manager::Restart;

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The API server is restarted: requests in flight complete.
    RestartApiServer,
    /// The API server crashes: connections break off.
    KillApiServer,
    /// etcd crashes and is away for some seconds.
    KillEtcd,
    /// A slow disk under etcd: for twenty seconds it stands still three times in four, 300 ms each time. Writes take as
    /// long as on an overloaded network volume and succeed, because the timeouts of the API server are longer.
    SlowDisk,
    /// A disk that hangs for five seconds: longer than the API server waits when it checks etcd, so it is not ready, and
    /// shorter than requests wait.
    StalledDisk,
    /// The client certificates of both managers are replaced.
    RotateCertificates,
    /// The leader ends; it is the only planned way for a manager to end.
    RestartLeader(Restart),
}

use Disturbance::{
    KillApiServer, KillEtcd, RestartApiServer, RestartLeader, RotateCertificates, SlowDisk, StalledDisk,
};

const ETCD_AWAY: Duration = Duration::from_secs(3);
const DISK_STALL: Duration = Duration::from_secs(5);
const SLOW_DISK_BURSTS: u32 = 50;
const SLOW_DISK_STOP: Duration = Duration::from_millis(300);
const SLOW_DISK_GO: Duration = Duration::from_millis(100);

/// The disturbances of the control plane, over and over, one per interval.
const ROUND: [Disturbance; 5] = [RestartApiServer, SlowDisk, KillEtcd, StalledDisk, KillApiServer];

/// When what happens, in order.
pub(super) fn schedule(
    length: Duration,
    interval: Duration,
    rotation: Duration,
) -> Vec<(Duration, Disturbance)> {
    let mut all: Vec<_> = ROUND
        .into_iter()
        .cycle()
        .zip(1..)
        .map(|(what, nth)| (interval * nth, what))
        .take_while(|(at, _)| *at < length)
        .collect();
    all.extend((1..).map(|nth| (rotation * nth, RotateCertificates)).take_while(|(at, _)| *at < length));
    // Early, so that both managers then run for more than half of the time and their memory can be judged.
    all.push((length.mul_f64(0.2), RestartLeader(Restart::Terminate)));
    all.push((length.mul_f64(0.4), RestartLeader(Restart::Kill)));
    all.sort_by_key(|(at, _)| *at);
    all
}

/// Disturbs the control plane, and returns when it is ready again. Blocks.
pub(super) fn disturb(plane: &ControlPlane, what: Disturbance) -> keleustes_control_plane::Result<()> {
    match what {
        RestartApiServer => plane.restart_api_server(Stop::Gracefully),
        KillApiServer => plane.restart_api_server(Stop::Kill),
        KillEtcd => {
            plane.stop_etcd(Stop::Kill)?;
            std::thread::sleep(ETCD_AWAY);
            plane.start_etcd()?;
            plane.wait_ready()
        }
        SlowDisk => (0..SLOW_DISK_BURSTS).try_for_each(|_| stall(plane, SLOW_DISK_STOP, SLOW_DISK_GO)),
        StalledDisk => stall(plane, DISK_STALL, Duration::ZERO),
        RotateCertificates | RestartLeader(_) => Ok(()),
    }
}

fn stall(plane: &ControlPlane, stop: Duration, go: Duration) -> keleustes_control_plane::Result<()> {
    plane.pause_etcd()?;
    std::thread::sleep(stop);
    plane.resume_etcd()?;
    std::thread::sleep(go);
    Ok(())
}

/// Waits for a time after the beginning.
pub(super) async fn wait_until(began: Instant, at: Duration) {
    tokio::time::sleep_until((began + at).into()).await;
}

/// Disturbs the control plane in a thread of its own.
pub(super) async fn disturb_in_background(
    plane: &Arc<ControlPlane>,
    what: Disturbance,
) -> anyhow::Result<()> {
    let plane = Arc::clone(plane);
    Ok(tokio::task::spawn_blocking(move || disturb(&plane, what)).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disturbance_happens_in_an_hour_and_the_last_restart_is_early() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let schedule = schedule(minutes(60), minutes(2), minutes(3));
        for what in ROUND {
            let times = schedule.iter().filter(|(_, other)| *other == what).count();
            assert!((5..=6).contains(&times), "{what:?}: {times}");
        }
        assert_eq!(schedule.iter().filter(|(_, what)| *what == RotateCertificates).count(), 19);
        let restarts: Vec<_> = schedule.iter().filter(|(_, what)| matches!(what, RestartLeader(_))).collect();
        assert_eq!(restarts.last().map(|(at, _)| *at), Some(minutes(24)));
        assert!(schedule.is_sorted_by_key(|(at, _)| *at) && schedule.iter().all(|(at, _)| *at < minutes(60)));
    }
}
