// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The caller and its guardian speak in frames of one size through two pipes. A frame
// is shorter than PIPE_BUF, so that the kernel never splits a write, but a reader may see
// several, or with an unlucky buffer a part. Both ends are the same binary: no versions.
const frameSize = 40

// frameKind tells frames apart.
type frameKind uint8

const (
	// From the caller.
	frameOrders   frameKind = iota + 1 // limits, stop
	frameSignal                        // arg: a signal for the command's group
	frameContinue                      // arg: 1 to hand the terminal to the command's group first

	// From the guardian.
	frameStarting    // from here on the command may have begun
	frameStarted     // arg: the command's pid as the guardian sees it
	frameNotStarted  // arg: errno; the guardian ends
	frameUncontained // arg: errno of mounting /proc; the guardian ends
	frameRefused     // the deadline had passed; the guardian ends
	frameStopped     // arg: the signal that stopped the command
	frameTerminating // SIGTERM was sent to everything
	frameEnded       // arg: the command's wait status
	frameDone        // no descendant is left; arg: the reason, doneKilled
)

// doneKilled is added to the reason in frameDone when SIGKILL was used.
const doneKilled = 1 << 8

const frameMagic = 0x7e

type frame struct {
	kind   frameKind
	arg    int32
	orders orders
}

func (f frame) append(b []byte) []byte {
	b = append(b, frameMagic, byte(f.kind), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.arg))
	for _, t := range [...]Instant{f.orders.Term, f.orders.Kill, f.orders.Expiry, f.orders.stop} {
		b = binary.LittleEndian.AppendUint64(b, uint64(t))
	}
	return b
}

var errFrame = errors.New("not a frame")

func parseFrame(b []byte) (frame, error) {
	if len(b) != frameSize || b[0] != frameMagic {
		return frame{}, fmt.Errorf("%w: % x", errFrame, b[:min(len(b), 8)])
	}
	at := func(i int) Instant { return Instant(binary.LittleEndian.Uint64(b[8+8*i:])) }
	return frame{
		kind: frameKind(b[1]),
		arg:  int32(binary.LittleEndian.Uint32(b[4:])),
		orders: orders{
			Limits: Limits{Term: at(0), Kill: at(1), Expiry: at(2)},
			stop:   at(3),
		},
	}, nil
}
