//! The controllers, each a pure decision over cached objects.
