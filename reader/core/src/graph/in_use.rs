//! A part of an index that is replaced while searches use it.

use std::sync::{Arc, PoisonError, RwLock};

/// The newest such part, if there is one. Searches keep the one that they began with.
pub struct InUse<T>(RwLock<Option<Arc<T>>>);

impl<T> Default for InUse<T> {
    fn default() -> Self {
        InUse(RwLock::default())
    }
}

impl<T> InUse<T> {
    /// The newest.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes another one, or none.
    pub fn replace(&self, new: Option<Arc<T>>) {
        let before = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), new);
        // The lock is released by now: to free a large part may take long.
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Says when it ends whether there is one in its place.
    struct Part {
        place: Weak<InUse<Part>>,
        ended: Sender<bool>,
    }

    impl Drop for Part {
        fn drop(&mut self) {
            let place = self.place.upgrade();
            self.ended.send(place.is_some_and(|place| place.get().is_some())).ok();
        }
    }

    #[test]
    fn searches_begin_while_the_part_before_is_freed() {
        let (place, (ended, outcomes)) = (Arc::new(InUse::default()), channel());
        let part = || Some(Arc::new(Part { place: Arc::downgrade(&place), ended: ended.clone() }));
        place.replace(part());
        let parts = [part(), None];
        let replacing = place.clone();
        std::thread::spawn(move || parts.into_iter().for_each(|part| replacing.replace(part)));
        for is_there in [true, false] {
            assert_eq!(outcomes.recv_timeout(Duration::from_secs(60)), Ok(is_there), "it waits for the lock");
        }
    }
}
