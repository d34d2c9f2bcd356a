//! A list that holds its first value in place: batches of one never allocate.

use std::slice;

/// One value in place, or many behind an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneOrMany<T> {
    /// Exactly one.
    One(T),
    /// Any number.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values as a slice.
    pub const fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => slice::from_ref(one),
            Self::Many(many) => many.as_slice(),
        }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The values in order, borrowed.
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.as_slice().iter()
    }
}

impl<T> From<T> for OneOrMany<T> {
    fn from(one: T) -> Self {
        Self::One(one)
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        let mut iter = iter.into_iter();
        let Some(first) = iter.next() else { return Self::Many(Vec::new()) };
        let Some(second) = iter.next() else { return Self::One(first) };
        let mut many = Vec::with_capacity(2 + iter.size_hint().0);
        many.extend([first, second]);
        many.extend(iter);
        Self::Many(many)
    }
}

impl<'a, T> IntoIterator for &'a OneOrMany<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> IntoIterator for OneOrMany<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        match self {
            Self::One(one) => IntoIter { one: Some(one), many: Vec::new().into_iter() },
            Self::Many(many) => IntoIter { one: None, many: many.into_iter() },
        }
    }
}

/// Owning iterator over a [`OneOrMany`].
#[derive(Debug)]
pub struct IntoIter<T> {
    one: Option<T>,
    many: std::vec::IntoIter<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.one.take().or_else(|| self.many.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.one.is_some()) + self.many.len();
        (left, Some(left))
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}
