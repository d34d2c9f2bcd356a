//! Groups that are kept from running.

use crate::executor::{Hold, Scope};
use crate::types::PartitionId;

use super::Chains;
use super::chain::State;
use super::lane::Lane;

impl Chains {
    pub(super) fn hold_scope(&mut self, scope: &Scope, how: Option<Hold>) {
        let Lane::Named(name) = self.lanes.of(scope.key.as_ref()) else {
            // No scope names one of these records, so they cannot be held, only let go.
            if how.is_none() {
                self.let_loose_go(scope.partition);
            }
            return;
        };
        let slot = self.claims.slot(scope.partition);
        let hash = self.groups.hash(scope.partition, name);
        match (self.groups.find(hash, slot, name), how) {
            (Some(chain), _) => self.set_hold(chain, how),
            (None, None) => {}
            (None, Some(_)) => {
                let chain = self.groups.add(hash, slot, name, self.time.now());
                self.groups.get_mut(chain).hold = how;
                self.bare += 1;
            }
        }
    }

    fn set_hold(&mut self, chain: u32, how: Option<Hold>) {
        let now = self.time.now();
        let it = self.groups.get_mut(chain);
        let was_blocked = it.is_blocked();
        if it.hold != how && !it.has_open_turn() {
            it.since = now;
        }
        it.hold = how;
        it.eager |= it.is_diverted();
        let blocked = it.is_blocked();
        if it.len == 0 && !it.has_open_turn() {
            if how.is_none() && it.state != State::Paced {
                self.bare -= 1;
                self.groups.remove(chain);
            }
        } else if was_blocked != blocked {
            match it.state {
                State::Ready => {
                    self.unready(chain);
                    self.make_ready(chain, now);
                    self.claims.notice(self.groups.get(chain).slot);
                }
                State::Waiting => {
                    self.make_ready(chain, now);
                }
                // Time goes on while the group is blocked, but wakes nobody.
                _ if it.is_timed() && blocked => self.cancel_alarm(chain),
                _ if it.is_timed() => self.set_alarm(chain),
                _ => {}
            }
        }
        let it = self.groups.get(chain);
        if it.state == State::Lingering && it.is_diverted() {
            self.cancel_alarm(chain);
            self.make_ready(chain, now);
        }
    }

    /// Lets all blocked records of a partition go that are scopes of their own.
    fn let_loose_go(&mut self, id: PartitionId) {
        let Some(slot) = self.claims.find(id) else { return };
        for chain in std::mem::take(&mut self.claims.get_mut(slot).blocked_loose) {
            self.set_hold(chain, None);
        }
    }
}
