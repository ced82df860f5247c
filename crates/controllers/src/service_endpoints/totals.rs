//! Totals of endpoints and slices, for metrics.

/// Totals of one Service or of all Services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) endpoints: usize,
    pub(crate) slices: usize,
    /// The number of slices with perfect allocation.
    pub(crate) desired_slices: usize,
}

impl Totals {
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            endpoints: self.endpoints + more.endpoints,
            slices: self.slices + more.slices,
            desired_slices: self.desired_slices + more.desired_slices,
        }
    }

    pub(crate) fn minus(self, less: Self) -> Self {
        Self {
            endpoints: self.endpoints - less.endpoints,
            slices: self.slices - less.slices,
            desired_slices: self.desired_slices - less.desired_slices,
        }
    }
}
