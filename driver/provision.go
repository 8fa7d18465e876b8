// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
)

// Provisioner is implemented by stores for whose records a person makes a table, before there
// are locks: "tenure table". An error of [Unsupported] says that the table cannot be as the
// options ask for, and that nothing was sent.
type Provisioner interface {
	// Create makes the table, and returns what it did. What is there already is left as it is:
	// if it is not as the options ask, or no store can use it, the error matches [ErrUnfit].
	Create(ctx context.Context, o CreateOptions) (did string, err error)
	// Describe returns what there is. The error says that nothing is known of it, or that
	// nothing is there.
	Describe(ctx context.Context, t Timing) (Description, error)
}

// Granter is implemented by stores on an engine that grants rights: "tenure table policy".
type Granter interface {
	// Policy returns the least privileges that must be granted, in the engine's own language,
	// and a note for its reader, which may be empty. An error of [Unsupported] is about the
	// options.
	Policy(ctx context.Context, o PolicyOptions) (text, note string, err error)
}

// ErrUnfit is matched by an error of [Provisioner.Create] about what was there before. See
// [Unfit].
var ErrUnfit = errors.New("not as requested")

// Unfit marks err as one about what was there before, and returns nil for nil. Both ErrUnfit
// and err match the result.
func Unfit(err error) error { return mark(err, ErrUnfit) }

// CreateOptions are for [Provisioner.Create]. A store ignores those that its engine has no use
// for.
type CreateOptions struct {
	// Print has the statement that makes the table returned, and nothing sent.
	Print bool
	// PartitionKey and SortKey name the keys of the table. If empty, they are those of the
	// store.
	PartitionKey, SortKey string
	// DeletionProtection has the engine refuse to delete the table.
	DeletionProtection bool
	// Recovery has the engine keep backups for a recovery to any point in time.
	Recovery bool
	// Tags are put on the table.
	Tags map[string]string
}

// PolicyOptions are for [Granter.Policy].
type PolicyOptions struct {
	// Role is the name of the role that is granted the rights, or made for them.
	Role string
	// ReadOnly leaves out what only a program that takes locks needs.
	ReadOnly bool
	// Unasked says why the engine must not be asked for the table's full name. If empty, it is
	// asked where that is needed.
	Unasked string
}

// Description is what there is of a store's table.
type Description struct {
	Properties []Property
	// Object is the same for programs: a struct for package json, with the findings.
	Object any
	// Findings are what is to be thought of it.
	Findings []Finding
}

// Property is one line of a description: a name and a value for people, and the check whose
// findings belong below it.
type Property struct{ Name, Value, Check string }

// Add adds a line. Check is empty where no finding belongs.
func (d *Description) Add(name, value, check string) {
	d.Properties = append(d.Properties, Property{name, value, check})
}

// OnOff returns the value of a property that is a switch.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
