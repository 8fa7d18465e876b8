// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Exclusive is what kong says of flags that are given together and must not be.
const Exclusive = " can't be used together"

// ValueMappers returns what reads the values of flags, and says in our words what is
// wrong with one. Kong's own speak of tokens and bits.
func ValueMappers() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, o := range []kong.Option{
			kong.TypeMapper(durationType, kong.MapperFunc(decodeDuration)),
			kong.KindMapper(reflect.String, kong.MapperFunc(decodeString)),
			kong.KindMapper(reflect.Int, kong.MapperFunc(decodeInt)),
			kong.KindMapper(reflect.Bool, decodeBool{}),
		} {
			if err := o.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

var durationType = reflect.TypeFor[time.Duration]()

// number takes a number, possibly negative, from the command line, so that the
// message about it shows the rule that it breaks.
func number(ctx *kong.DecodeContext) (text string, ok bool) {
	token := ctx.Scan.Peek()
	text = token.String()
	if token.IsEOL() || !token.IsValue() && !negative(text) {
		return "", false
	}
	ctx.Scan.Pop()
	return text, true
}

func negative(text string) bool {
	return len(text) > 1 && text[0] == '-' && strings.ContainsRune(".0123456789", rune(text[1]))
}

func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	const write = "write a number with its unit, such as 15s, 500ms or 2m"
	text, ok := number(ctx)
	if !ok {
		return errors.New("a duration is missing: " + write)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%.40q is not a duration: %s", text, write)
	}
	target.SetInt(int64(d))
	return nil
}

func decodeInt(ctx *kong.DecodeContext, target reflect.Value) error {
	text, ok := number(ctx)
	if !ok {
		return errors.New("a whole number is missing")
	}
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%.40s is too large", text)
	case err != nil:
		return fmt.Errorf("%.40q is not a whole number", text)
	}
	target.SetInt(n)
	return nil
}

func decodeString(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Peek()
	switch {
	case token.IsEOL():
		return errors.New("its value is missing")
	case !token.IsValue():
		return fmt.Errorf(`its value is missing; if it is %.40q, write "=" before it`, token.String())
	}
	target.SetString(ctx.Scan.Pop().String())
	return nil
}

// decodeBool reads a flag that is there or not. It is a [kong.BoolMapper].
type decodeBool struct{}

func (decodeBool) IsBool() bool { return true }

func (decodeBool) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	text := ctx.Scan.Pop().String()
	b, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf(`%.40q is neither "true" nor "false": the flag alone turns it on`, text)
	}
	target.SetBool(b)
	return nil
}
