//go:build tools

// Package tools names the program that is built from this module, so that go.mod and go.sum cover it.
package tools

import _ "go.etcd.io/etcd/server/v3"
