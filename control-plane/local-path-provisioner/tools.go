//go:build tools

// Package tools names the program that is built from this module, so that go.mod and go.sum cover it.
package tools

import _ "github.com/rancher/local-path-provisioner"
