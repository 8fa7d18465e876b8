// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"crypto/sha1" //nolint:gosec // it names a script, as Redis does
	"encoding/hex"
)

// The layout. Every key begins with the prefix in braces, the hash tag, so that all are in one slot of
// a cluster, and in one stream of replication.
//
// {PREFIX}:life is the store's own hash: f is the format, id names the store, is has its settings, open
// is the life that is open, base is the least token of that life, and mark tells when the replicas followed.
//
// {PREFIX}:names is a sorted set of the keys that have a record.
//
// {PREFIX}:r:KEY is a record, a hash: f is the format, v the version, t the token, s the state, p the term
// before, d the data, and r the rest as text. b is what p becomes when a released record is claimed; l is the life in
// which a session was opened. An empty field is like none, so that one HSET writes all of a record.
//
// The channel {PREFIX}:wake has a message for each change that waiters must see: the key.
//
// Each script decides everything before it writes, since Redis rolls nothing back. Tokens are compared
// and counted as text: a number of Lua is a double, in which 2^53 and 2^53+1 are equal. What follows the write
// of a record uses pcall, so that a missing right for it does not turn a write that was made into an error.

// script is a script with the name that the server gives to it.
type script struct{ text, sha string }

func newScript(parts ...string) script {
	s := script{}
	for _, part := range parts {
		s.text += part
	}
	sum := sha1.Sum([]byte(s.text)) //nolint:gosec // as above
	s.sha = hex.EncodeToString(sum[:])
	return s
}

const (
	// serverLua refuses a server that is no primary. life is the life of the engine.
	//
	// ARGV: 1 the id of the store, empty if it is not known yet; 2 its settings; 3 and 4 the least and the highest
	// number of replicas; 5 the highest lag of a replica in seconds.
	serverLua = `
local info = redis.call('INFO', 'replication')
local _, at = string.find(info, 'master_replid:', 1, true)
if not at then return {'stranger'} end
local life = string.sub(info, at + 1, at + 40)
if not string.find(info, 'role:master', 1, true) then return {'replica'} end
`
	// storeLua refuses another store than that of the caller.
	storeLua = serverLua + `
local store = redis.call('HMGET', KEYS[1], 'f', 'id', 'is', 'open', 'base', 'mark')
if not store[1] then return {'absent'} end
if store[1] ~= '1' then return {'later', store[1]} end
if ARGV[1] ~= '' and store[2] ~= ARGV[1] then return {'other'} end
if store[3] ~= ARGV[2] then return {'settings', store[3] or ''} end
local id, open, base = store[2], store[4], store[5] or '0'
local guarded = ARGV[2] ~= 'single'
if not guarded then open, base = life, '0' end
`
	// writeLua refuses a write with too few replicas, or too many. A primary without replicas must not get one.
	//
	// A lag is the time since an answer arrived, which may be long after a replica has sent it: the network was away,
	// or the server stood still. So a mark notes the time and how much was sent to replicas by then. A replica that has
	// acknowledged more followed the server after that time. All this is by the server's own clock.
	writeLua = storeLua + `
local replicas, after, stands = 0, 0, true
local least, most, lag = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local at, sent, known = string.match(store[6] or '', '^' .. life .. ' (%d+) (%d+) (%d+)$')
at, sent, known = tonumber(at or 0), tonumber(sent or 0), tonumber(known or 0)
if not string.find(info, 'connected_slaves:0', 1, true) then
  for offset, silent in string.gmatch(info, 'state=online[^\r\n]*offset=(%d+)[^\r\n]*lag=(%d+)') do
    if most == 0 or tonumber(silent) <= lag then replicas = replicas + 1 end
    if tonumber(offset) > sent then after = after + 1 end
  end
end
if most > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local was, knew = at, known
  if now < at then at, known = 0, 0 end
  if after >= least then known = at end
  if known == at and now >= at + 1000 then at, sent = now, string.match(info, 'master_repl_offset:(%d+)') end
  if at ~= was or known ~= knew then
    redis.pcall('HSET', KEYS[1], 'mark', string.format('%s %.0f %.0f %.0f', life, at, sent, known))
  end
  stands = now <= known + (lag + 2) * 1000
end
if replicas < least or replicas > most then return {'replicas', tostring(replicas)} end
if not stands then return {'unheard'} end
local function less(a, b) return #a < #b or #a == #b and a < b end
local function answer(word, all) return {word, life, id, all or redis.call('HGETALL', KEYS[2]), base} end
`
	// openLua opens the life of the engine. ARGV: 6 that life, or empty; 7 its base by a clock.
	openLua = writeLua + `
if guarded and ARGV[6] == life and open ~= life then
  redis.call('HINCRBY', KEYS[1], 'base', 1048576)
  base = redis.call('HGET', KEYS[1], 'base')
  if less(base, ARGV[7]) then base = ARGV[7] end
  redis.call('HSET', KEYS[1], 'open', life, 'base', base)
  open = life
end
`
)

var (
	// ARGV: 8 whether it raises the token of a lock; 9 the version, 10 the state, 11 the text; 12 the key; 13 whether
	// there are data, and 14 the data.
	claimLua = newScript(openLua, `
local function next(token)
  local head, nines = string.match(token, '^(.-)(9*)$')
  local zeros = string.rep('0', #nines)
  if head == '' then return '1' .. zeros end
  return string.sub(head, 1, -2) .. string.char(string.byte(head, -1) + 1) .. zeros
end
local all, c = redis.call('HGETALL', KEYS[2]), {}
for i = 1, #all, 2 do c[all[i]] = all[i + 1] end
local found = #all > 0
if ARGV[8] == '1' and open ~= life then return answer('closed', all) end
if c.s and c.s ~= 'released' then return answer('conflict', all) end
if found and (c.f ~= '1' or not c.s or not c.t or not c.b or c.b == '') then return answer('unreadable', all) end
if ARGV[8] == '1' and less(c.t or '0', base) then return answer('below', all) end
if c.t == '9223372036854775807' then return answer('max', all) end
local token = '1'
if found then token = next(c.t) else redis.call('ZADD', KEYS[3], 0, ARGV[12]) end
local set = {'f', '1', 'v', ARGV[9], 't', token, 's', ARGV[10], 'r', ARGV[11], 'p', c.b or '', 'b', ''}
if ARGV[10] == 'alive' then set[15], set[16] = 'l', life end
if ARGV[13] == '1' then set[#set + 1], set[#set + 2] = 'd', ARGV[14] end
redis.call('HSET', KEYS[2], unpack(set))
return answer('done', all)
`)
	// ARGV: 8 as above; 9 the version and 10 the token that it replaces; 11 the version, 12 the token, 13 the state,
	// 14 the text, 15 the term before, 16 the term that it shows; 17 the key; 18 whether to replace the data, and 19
	// the data; 20 the channel, or empty to wake nobody; 21 the life to which the write is bound, or empty.
	swapLua = newScript(openLua, `
local c = redis.call('HMGET', KEYS[2], 'f', 'v', 't', 's', 'l')
if guarded and ARGV[13] == 'alive' and c[4] == 'alive' and c[5] ~= life then return answer('ended') end
if guarded and ARGV[21] ~= '' and ARGV[21] ~= life then return answer(open == life and 'conflict' or 'closed') end
local matches = c[2] == ARGV[9] and c[3] == ARGV[10]
if ARGV[8] == '1' then
  if open ~= life then return answer('closed') end
  local token = c[3] or '0'
  local free = not c[4] or c[4] == 'released' or c[4] == 'reserved'
  local shown = guarded and ARGV[9] == life and ARGV[10] == token and free
  if (matches or shown) and less(token, base) then return answer('below') end
end
if not matches then return answer('conflict') end
if c[1] ~= '1' then return answer('unreadable') end
local set = {'v', ARGV[11], 't', ARGV[12], 's', ARGV[13], 'r', ARGV[14], 'p', ARGV[15], 'b', ARGV[16]}
if ARGV[18] == '1' then set[13], set[14] = 'd', ARGV[19] end
redis.call('HSET', KEYS[2], unpack(set))
if ARGV[20] ~= '' then redis.pcall('PUBLISH', ARGV[20], ARGV[17]) end
return {'done', life, id}
`)
	// raiseLua writes what driver.RaisedAtOpening returns. ARGV: 6 the life that must be open, and 7 its base; from 9
	// on as in swapLua, without data and channel.
	raiseLua = newScript(writeLua, `
local c = redis.call('HMGET', KEYS[2], 'v', 't')
local found = redis.call('EXISTS', KEYS[2]) == 1
if open ~= life then return answer('closed') end
local same = c[1] == ARGV[9] and c[2] == ARGV[10] or not found and ARGV[10] == '0'
if life ~= ARGV[6] or base ~= ARGV[7] or not same then return answer('conflict') end
if not found then redis.call('ZADD', KEYS[3], 0, ARGV[17]) end
redis.call('HSET', KEYS[2], 'f', '1', 'v', ARGV[11], 't', ARGV[12], 's', ARGV[13], 'r', ARGV[14], 'p', ARGV[15], 'b', ARGV[16])
return {'done', life, id}
`)
	// ARGV: 6 the version and 7 the token; 8 the key; 9 the channel; 10 the life to which the write is bound, or empty.
	deleteLua = newScript(writeLua, `
local c = redis.call('HMGET', KEYS[2], 'f', 'v', 't')
local bound = guarded and ARGV[10] ~= '' and ARGV[10] ~= life
if bound or c[2] ~= ARGV[6] or c[3] ~= ARGV[7] then return answer('conflict') end
if c[1] ~= '1' then return answer('unreadable') end
redis.call('DEL', KEYS[2])
redis.pcall('ZREM', KEYS[3], ARGV[8])
redis.pcall('PUBLISH', ARGV[9], ARGV[8])
return {'done', life, id}
`)
	// readLua returns the records of all keys but the first, each a hash or the text of an error.
	readLua = newScript(storeLua, `
local out = {open == life and 'open' or 'closed', life, id}
for i = 2, #KEYS do
  local all = redis.pcall('HGETALL', KEYS[i])
  out[i + 2] = all.err or all
end
return out
`)
	// ARGV: 6 and 7 the range, 8 the size of a page.
	namesLua = newScript(storeLua, `
return {'done', life, id, redis.call('ZRANGEBYLEX', KEYS[2], ARGV[6], ARGV[7], 'LIMIT', 0, ARGV[8])}
`)
	// createLua makes the store, in the present life. ARGV: 1 the id, 2 the settings, 6 the base if there are records.
	createLua = newScript(serverLua, `
local store = redis.call('HMGET', KEYS[1], 'f', 'id', 'is')
if store[1] then return {'exists', store[1], store[3] or ''} end
local base = '0'
if redis.call('ZCARD', KEYS[2]) > 0 then base = ARGV[6] end
redis.call('HSET', KEYS[1], 'f', '1', 'id', ARGV[1], 'is', ARGV[2], 'open', life, 'base', base)
return {'created', life}
`)
	// describeLua returns what the store's own record has.
	describeLua = newScript(serverLua, `
return {'done', life, redis.call('HGETALL', KEYS[1]), redis.call('ZCARD', KEYS[2])}
`)
)
