// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import (
	"context"
	"fmt"
	"os"
)

// file looks at the file from outside.
func (p *Patient) file() {
	info, err := os.Stat(p.File)
	if err != nil {
		p.Tell(Finding{"file", Bad, err.Error(), "tenure run and tenure lead create it; see the folder's permissions"})
		return
	}
	p.Tell(Finding{"file", OK, fmt.Sprintf("%s, %d kB, %v", p.File, (info.Size()+1023)>>10, info.Mode()), ""})
}

// blockers would say who blocks the file: only Linux tells that everybody.
func (p *Patient) blockers(context.Context, bool) {}
