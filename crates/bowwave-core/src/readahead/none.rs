//! No readahead: the baseline that every policy must beat.

use super::{Access, Plan, Plans, Readahead, Reason, View};
use crate::event::Trigger;

/// Reads on a miss exactly the rest of the request, in one go, and nothing ahead.
///
/// Linux with readahead off reads page by page; reading the whole request at once is the stronger
/// baseline.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReadahead;

impl Readahead for NoReadahead {
    fn on_access(&mut self, access: Access, _view: View<'_>, plans: &mut Plans) {
        let size = if access.trigger == Trigger::Miss { access.req_pages() } else { 0 };
        plans.push(Plan::new(access.page, size, 0, Reason::Demand));
    }
}
