// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// tokens looks at the fencing token over releases, a takeover, and after the record
// was deleted by hand.
func tokens(ctx context.Context, s *scene) (cell, error) {
	one, other, err := s.two(ctx, releasing, releasing)
	if err != nil {
		return cell{}, err
	}
	name := s.lock()
	var seen []uint64
	take := func(m *member) error {
		a, err := m.Acquire(ctx, name)
		if err == nil && a.Token != nil {
			seen = append(seen, *a.Token)
		}
		return err
	}
	takeAndRelease := func() error {
		err := take(one)
		if err == nil {
			_, err = one.Release(ctx, name)
		}
		return err
	}
	for range 2 {
		if err := takeAndRelease(); err != nil {
			return cell{}, err
		}
	}
	if err := take(other); err != nil {
		return cell{}, err
	}
	other.Kill()
	if err := takeAndRelease(); err != nil {
		return cell{}, err
	}
	if len(seen) == 0 {
		return cell{Verdict: failed, Seen: "has none"}, nil
	}
	c := cell{Verdict: passed, Seen: "rises: " + listed(seen)}
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			c = cell{Verdict: failed, Seen: "does not rise: " + listed(seen)}
		}
	}
	deleted, err := s.deleteRecord(ctx, name)
	if err != nil || !deleted {
		return c, err
	}
	before := len(seen)
	if err := take(one); err != nil {
		return cell{}, err
	}
	for _, token := range seen[before:] {
		c.Seen += fmt.Sprintf("; after its record was deleted by hand: %d", token)
	}
	return c, nil
}

// deleteRecord deletes a released record as an operator could. It returns false if
// there is none.
func (s *scene) deleteRecord(ctx context.Context, name string) (bool, error) {
	switch {
	case s.onDynamoDB():
		_, err := s.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &s.table.Name, Key: map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: name}},
		})
		return true, err
	case s.name == kubeName:
		s.kube.forget(namespace, name)
		return true, nil
	case s.elsewhere():
		return true, s.forget(ctx, name)
	}
	return false, nil // the release has deleted it
}

func listed(tokens []uint64) string {
	texts := make([]string, len(tokens))
	for i, t := range tokens {
		texts[i] = fmt.Sprint(t)
	}
	return strings.Join(texts, ", ")
}
