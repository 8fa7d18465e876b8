// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
)

// Provisioner is implemented by stores whose table a person creates before the first lock:
// "tenure table". An error of [Unsupported] says that the store cannot create a table with
// these options, and that nothing was sent.
type Provisioner interface {
	// Create creates the table, and returns what it did. An existing table is left as it is:
	// if it differs from the options, or no store can use it, the error matches [ErrUnfit].
	Create(ctx context.Context, o CreateOptions) (did string, err error)
	// Describe returns the state of the table. The error says that the table is missing,
	// or that its state is unknown.
	Describe(ctx context.Context, t Timing) (Description, error)
}

// Granter is implemented by stores on an engine that grants rights: "tenure table policy".
type Granter interface {
	// Policy returns the least privileges that must be granted, in the engine's own language,
	// and a note for its reader, which may be empty. An error of [Unsupported] is about the
	// options.
	Policy(ctx context.Context, o PolicyOptions) (text, note string, err error)
}

// ErrUnfit is matched by an error of [Provisioner.Create] about an existing table. See
// [Unfit].
var ErrUnfit = errors.New("not as requested")

// Unfit marks err as an error about an existing table, and returns nil for nil. Both
// ErrUnfit and err match the result.
func Unfit(err error) error { return mark(err, ErrUnfit) }

// CreateOptions are for [Provisioner.Create]. A store ignores options that its engine does not
// have.
type CreateOptions struct {
	// Print has Create return the statement that creates the table, and send nothing.
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
	// Role is the name of the role that is granted the rights, or created for them.
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
	// Findings are the assessment of the table.
	Findings []Finding
}

// Property is one line of a description: a name and a value for people, and the check whose
// findings are shown below it.
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
