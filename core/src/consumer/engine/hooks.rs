//! The user's hooks: told of what came and went, one after another, in the order it happened.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Engine;
use crate::ErrorKind;
use crate::consumer::Warning;
use crate::consumer::failure::panic_message;
use crate::types::Claim;

/// A user's hook for partitions that come or go.
pub(crate) type ClaimsHook = dyn Fn(&[Claim]) + Send + Sync;
/// A user's hook for warnings.
pub(crate) type WarningHook = dyn Fn(&Warning) + Send + Sync;

/// The hooks of one consumer.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) assigned: Option<Arc<ClaimsHook>>,
    pub(crate) revoked: Option<Arc<ClaimsHook>>,
    pub(crate) warning: Option<Arc<WarningHook>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("assigned", &self.assigned.is_some())
            .field("revoked", &self.revoked.is_some())
            .field("warning", &self.warning.is_some())
            .finish()
    }
}

/// What a hook is to be told.
#[derive(Debug)]
pub(super) enum Call {
    Assigned(Vec<Claim>),
    Revoked(Vec<Claim>),
}

/// Calls that were not made yet. Filled under the state lock, so their order is the true one;
/// bounded by the changes that one lock makes, since whoever fills it empties it.
#[derive(Default)]
pub(super) struct HookQueue {
    calls: Mutex<VecDeque<Call>>,
    /// Held while hooks run: two threads must not tell the second thing first, and whoever comes
    /// second must not go on before the first has told everything.
    turn: Mutex<()>,
}

impl HookQueue {
    pub(super) fn push(&self, call: Call) {
        self.lock().push_back(call);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Tells the hooks what there is to tell.
    pub(super) fn call_hooks(&self) {
        let _turn = self.hooks.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(call) = self.hooks.lock().pop_front() else { return };
            let hooks = &self.options.hooks;
            let (hook, claims, what) = match &call {
                Call::Assigned(claims) => (&hooks.assigned, claims, "assigned"),
                Call::Revoked(claims) => (&hooks.revoked, claims, "revoked"),
            };
            for claim in claims {
                tracing::info!(
                    subscription = &*self.subscription,
                    partition = %claim.partition,
                    epoch = %claim.epoch,
                    "partition {what}"
                );
            }
            if let Some(hook) = hook {
                self.guarded(&format!("on_{what}"), || hook(claims));
            }
        }
    }

    /// Runs a hook. Whoever brought the news, perhaps another member, goes on; a panic ends the run
    /// whose hook it is.
    fn guarded(&self, name: &str, hook: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
            let hint = format!("the hook `{name}` panicked; what it did may be half done");
            let cause = panic_message(&*panic);
            self.fail(self.error(ErrorKind::Unknown).with_hint(format!("{hint}: {cause}")));
        }
    }

    /// Tells of something that a person should look at, and that stops nothing.
    pub(crate) fn warn(&self, warning: &Warning) {
        tracing::warn!(subscription = &*self.subscription, "{warning}");
        if let Some(hook) = &self.options.hooks.warning {
            self.guarded("on_warning", || hook(warning));
        }
    }
}
