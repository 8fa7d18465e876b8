--------------------------- MODULE ReadersWriters ---------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Package rwlock, on plain locks: a writer holds the gate, a reader a      *)
(* slot.                                                                    *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Readers, Writers, \* disjoint, numbered from 1
    Slots,      \* the most slots, numbered from 1
    First,      \* the number of slots at first
    MaxToken,   \* of a slot: bounds how often it is taken
    MaxEpoch,   \* the last term of the gate
    Turns,      \* TRUE: tokens of slots wrap around: readers come for ever
    Fenced,     \* TRUE: there is a fenced resource
    Downs,      \* TRUE: writers may become readers
    Ends,       \* TRUE: leases may be lost, claims may be late
    Elsewhere,  \* those that are clients of a lock service
    Wrong

VARIABLES
    gate,       \* the record of the gate
    old,        \* the gate before its last change, for stale reads
    slot,       \* the records of the slots
    number,     \* how many slots there are, by their record
    proc,
    net,        \* accesses in flight; each may arrive late and repeatedly
    res         \* the resource: the highest token seen, and failures

vars == <<gate, old, slot, number, proc, net, res>>
Procs == Readers \cup Writers

-----------------------------------------------------------------------------
(* All that is assumed of a lock: one holder at a time, whose right ends at  *)
(* any time, for good. by is 0 if nobody holds it. eff is the epoch of the   *)
(* last term that may have written, before the one shown.                    *)

(* A process.                                                                *)
(*   reader  idle, early (a mistake), claimed, slot (granted), reads; and    *)
(*           elsewhere told (the gate was seen for it, by its service)       *)
(*   writer  gate (granted), looks, waits, writes, down (claims a slot)      *)
(* g, s: its right to the gate, to slot k. n: the number of slots it relies  *)
(* on; i: the next to read; noted: the terms of slots it waits for; e: the   *)
(* epoch it has read.                                                        *)

Idle == [at |-> "idle", g |-> FALSE, s |-> FALSE, k |-> 0, n |-> 0, i |-> 1, noted |-> {}, e |-> 0, tok |-> 0, shown |-> FALSE]

Becomes(p, q) == proc' = [proc EXCEPT ![p] = q]
GateBecomes(g) == gate' = g /\ old' = gate
Next1(t) == IF Turns THEN (t + 1) % 3 ELSE t + 1
Passed(q, k) == IF Turns THEN [proc[q] EXCEPT !.noted = {IF x[1] = k THEN <<k, 9>> ELSE x : x \in @}] ELSE proc[q]
Room(k) == Turns \/ slot[k].tok < MaxToken

Dead(k) == slot[k].by # 0 /\ ~(proc[slot[k].by].s /\ proc[slot[k].by].k = k)
GateDead == gate.by # 0 /\ ~proc[gate.by].g
Ended(g) == [g EXCEPT !.by = 0, !.eff = g.tok]

-----------------------------------------------------------------------------
(* A reader takes a slot before it reads the gate.                           *)

Early(p) ==
    /\ Wrong \cap {"gate first", "epoch before"} # {}
    /\ proc[p].at = "idle" /\ gate.by = 0
    /\ Becomes(p, [Idle EXCEPT !.at = "early", !.e = gate.eff])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

Start(p) == IF Wrong \cap {"gate first", "epoch before"} # {} THEN "early" ELSE "idle"

ClaimSlot(p, k) ==
    /\ proc[p].at = Start(p) /\ k <= number /\ Room(k)
    /\ slot[k].by = 0 \/ Dead(k)
    /\ slot' = [slot EXCEPT ![k] = [by |-> p, tok |-> Next1(@.tok)]]
    /\ proc' = [q \in Procs |-> IF q = p THEN [proc[p] EXCEPT !.at = "claimed", !.k = k] ELSE Passed(q, k)]
    /\ UNCHANGED <<gate, old, number, net, res>>

Grow(p) ==
    /\ proc[p].at = Start(p) /\ number < Slots /\ \A k \in 1..number : slot[k].by # 0
    /\ number' = number + 1
    /\ UNCHANGED <<gate, old, slot, proc, net, res>>

Granted(p) ==
    /\ proc[p].at = "claimed" /\ slot[proc[p].k].by = p
    /\ Becomes(p, [proc[p] EXCEPT !.at = "slot", !.s = TRUE])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

ReaderToken(e) == CASE "writer's token" \in Wrong -> 2 * e [] "next writer's token" \in Wrong -> 2 * e + 2 [] OTHER -> 2 * e + 1

Reads(p, e) == [proc[p] EXCEPT !.at = "reads", !.e = e, !.tok = ReaderToken(e), !.shown = FALSE]

Look(p, seen) ==
    /\ proc[p].at = "slot"
    /\ IF seen.by = 0 \/ "writer not waited" \in Wrong
       THEN /\ Becomes(p, Reads(p, IF "epoch before" \in Wrong THEN proc[p].e ELSE seen.eff))
            /\ UNCHANGED slot
       ELSE /\ slot' = [slot EXCEPT ![proc[p].k].by = 0]
            /\ Becomes(p, Idle)
    /\ UNCHANGED <<gate, old, number, net, res>>
LookAtGate(p) ==
    CASE "gate first" \in Wrong -> Look(p, [gate EXCEPT !.by = 0])
      [] "stale read" \in Wrong -> Look(p, gate) \/ Look(p, old)
      [] OTHER -> Look(p, gate)

(* Elsewhere, the service looks before its client knows of the grant. The    *)
(* client has its right from its first heartbeat on, however late that is,   *)
(* if the record is as it was granted. Before, it is dead for everybody      *)
(* else.                                                                     *)

LookElsewhere(p) ==
    /\ p \in Elsewhere /\ proc[p].at = "claimed" /\ slot[proc[p].k].by = p /\ gate.by = 0
    /\ Becomes(p, [Reads(p, gate.eff) EXCEPT !.at = "told"])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

FirstBeat(p) ==
    /\ \/ /\ proc[p].at = "told" /\ slot[proc[p].k].by = p
          /\ Becomes(p, [proc[p] EXCEPT !.at = "reads", !.s = TRUE])
       \/ /\ p \in Writers \cap Elsewhere /\ proc[p].at \in {"gate", "looks", "waits"} /\ ~proc[p].g /\ gate.by = p
          /\ Becomes(p, [proc[p] EXCEPT !.g = TRUE])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

StopReading(p) ==
    /\ proc[p].at = "reads" /\ ~proc[p].g
    /\ slot' = IF slot[proc[p].k].by = p THEN [slot EXCEPT ![proc[p].k].by = 0] ELSE slot
    /\ Becomes(p, Idle)
    /\ UNCHANGED <<gate, old, number, net, res>>

FreeGate ==
    /\ GateDead
    /\ GateBecomes(Ended(gate))
    /\ UNCHANGED <<slot, number, proc, net, res>>

-----------------------------------------------------------------------------
(* A writer takes the gate before it reads the slots.                        *)

TooEarly == Wrong \cap {"slots first", "number first"} # {}

Before(p) ==
    /\ TooEarly /\ proc[p].at = "idle"
    /\ Becomes(p, [Idle EXCEPT !.at = IF "slots first" \in Wrong THEN "looks" ELSE "early", !.n = number])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

TakeGate(p) ==
    /\ proc[p].at = (IF TooEarly THEN "early" ELSE "idle")
    /\ gate.tok < MaxEpoch
    /\ gate.by = 0 \/ GateDead
    /\ GateBecomes([(IF gate.by = 0 THEN gate ELSE Ended(gate)) EXCEPT !.by = p, !.tok = @ + 1])
    /\ Becomes(p, [proc[p] EXCEPT !.at = IF "slots first" \in Wrong THEN "waits" ELSE "gate", !.g = p \notin Elsewhere, !.tok = 2 * (gate.tok + 1)])
    /\ UNCHANGED <<slot, number, net, res>>

ReadNumber(p) ==
    /\ proc[p].at = "gate"
    /\ Becomes(p, [proc[p] EXCEPT !.at = "looks", !.n = IF "number first" \in Wrong THEN @ ELSE number])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

LookAtSlot(p) ==
    /\ proc[p].at = "looks"
    /\ IF proc[p].i > proc[p].n
       THEN Becomes(p, [proc[p] EXCEPT !.at = IF "slots first" \in Wrong THEN "early" ELSE "waits"])
       ELSE Becomes(p, [proc[p] EXCEPT !.i = @ + 1,
                !.noted = IF slot[proc[p].i].by = 0 THEN @ ELSE @ \cup {<<proc[p].i, slot[proc[p].i].tok>>}])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

\* A writer ends the term of a dead reader by a write, for the sake of those elsewhere.
FreeSlot(k) ==
    /\ Elsewhere # {} /\ Dead(k)
    /\ slot' = [slot EXCEPT ![k].by = 0]
    /\ UNCHANGED <<gate, old, number, proc, net, res>>

Over(k, t) ==
    \/ slot[k].by = 0 \/ (Dead(k) /\ (Elsewhere = {} \/ "dead stays" \in Wrong))
    \/ slot[k].tok # t /\ "waits for free" \notin Wrong
    \/ "reader not waited" \in Wrong
Gone(p) ==
    /\ proc[p].at = "waits"
    /\ \E x \in proc[p].noted :
        /\ Over(x[1], x[2])
        /\ Becomes(p, [proc[p] EXCEPT !.noted = @ \ {x}])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

Write(p) ==
    /\ proc[p].at = "waits" /\ proc[p].noted = {} /\ proc[p].g
    /\ Becomes(p, [proc[p] EXCEPT !.at = "writes"])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

StopWriting(p) ==
    /\ proc[p].at = "writes" /\ gate.by = p /\ proc[p].g
    /\ GateBecomes(Ended(gate))
    /\ Becomes(p, Idle)
    /\ UNCHANGED <<slot, number, net, res>>

\* It records that it has not written.
GiveBack(p) ==
    /\ proc[p].at = "waits" /\ gate.by = p /\ proc[p].g /\ Ends
    /\ GateBecomes(IF "given back counts" \in Wrong THEN Ended(gate) ELSE [gate EXCEPT !.by = 0])
    /\ Becomes(p, Idle)
    /\ UNCHANGED <<slot, number, net, res>>

-----------------------------------------------------------------------------
(* A downgrade takes a slot before it releases the gate.                     *)

Down(p, k) ==
    /\ Downs /\ proc[p].at = "writes" /\ proc[p].g
    /\ k <= number /\ Room(k) /\ (slot[k].by = 0 \/ Dead(k))
    /\ "gate released first" \in Wrong => gate.by # p
    /\ slot' = [slot EXCEPT ![k] = [by |-> p, tok |-> Next1(@.tok)]]
    /\ Becomes(p, [proc[p] EXCEPT !.at = "down", !.k = k])
    /\ UNCHANGED <<gate, old, number, net, res>>

DownGranted(p) ==
    /\ proc[p].at = "down" /\ slot[proc[p].k].by = p
    /\ proc[p].g \/ Wrong \cap {"believes", "gate released first"} # {}
    /\ Becomes(p, [proc[p] EXCEPT !.at = "reads", !.s = TRUE, !.g = proc[p].g /\ gate.by = p,
            !.e = proc[p].tok \div 2, !.tok = ReaderToken(proc[p].tok \div 2), !.shown = "not shown" \in Wrong /\ proc[p].shown])
    /\ UNCHANGED <<gate, old, slot, number, net, res>>

Open(p) ==
    /\ gate.by = p /\ proc[p].g
    /\ proc[p].at = "reads" \/ ("gate released first" \in Wrong /\ Downs /\ proc[p].at = "writes")
    /\ GateBecomes(Ended(gate))
    /\ Becomes(p, [proc[p] EXCEPT !.g = proc[p].at = "writes"])
    /\ UNCHANGED <<slot, number, net, res>>

-----------------------------------------------------------------------------
(* Faults: a right ends for good; the record stays.                          *)

Lose(p) ==
    /\ Ends /\ proc[p].at \notin {"idle", "early"}
    /\ IF "believes" \in Wrong /\ proc[p].at = "down" /\ proc[p].g
       THEN Becomes(p, [proc[p] EXCEPT !.g = FALSE])
       ELSE Becomes(p, Idle)
    /\ res' = [res EXCEPT !.lost = @ \/ proc[p].at \in {"gate", "looks", "waits"}]
    /\ UNCHANGED <<gate, old, slot, number, net>>

\* A late claim, which nobody relies on.
LateClaim(p, k) ==
    /\ Ends /\ proc[p].at = "idle" /\ p \in Readers
    /\ slot[k].by = 0 /\ slot[k].tok > 0 /\ Room(k)
    /\ slot' = [slot EXCEPT ![k] = [by |-> p, tok |-> Next1(@.tok)]]
    /\ UNCHANGED <<gate, old, number, proc, net, res>>

-----------------------------------------------------------------------------
(* The resource behind a fence.                                              *)

Rightly(p) ==
    \/ proc[p].at = "reads" /\ proc[p].s
    \/ proc[p].at = "writes" /\ proc[p].g

Access(p) == [p |-> p, w |-> proc[p].at = "writes", tok |-> proc[p].tok]

Send(p) ==
    /\ Fenced /\ Rightly(p) /\ Access(p) \notin net
    /\ net' = net \cup {Access(p)}
    /\ UNCHANGED <<gate, old, slot, number, proc, res>>

Arrive(a) ==
    /\ a \in net
    /\ LET mine(q) == Rightly(q) /\ Access(q) = a
           disturbed(q) == Rightly(q) /\ proc[q].shown /\ Access(q) # a /\ (a.w \/ proc[q].at = "writes")
       IN IF a.tok < res.seen
          THEN /\ res' = [res EXCEPT !.refused = @ \/ \E q \in Procs : mine(q)]
               /\ UNCHANGED proc
          ELSE /\ res' = [res EXCEPT !.seen = a.tok, !.torn = @ \/ \E q \in Procs : disturbed(q)]
               /\ proc' = [q \in Procs |-> IF mine(q) THEN [proc[q] EXCEPT !.shown = TRUE] ELSE proc[q]]
    /\ UNCHANGED <<gate, old, slot, number, net>>

-----------------------------------------------------------------------------
Init ==
    /\ gate = [by |-> 0, tok |-> 0, eff |-> 0] /\ old = gate
    /\ slot = [k \in 1..Slots |-> [by |-> 0, tok |-> 0]]
    /\ number = First
    /\ proc = [p \in Procs |-> Idle]
    /\ net = {}
    /\ res = [seen |-> 0, torn |-> FALSE, refused |-> FALSE, lost |-> FALSE]

Reader(p) ==
    \/ Early(p) \/ \E k \in 1..Slots : ClaimSlot(p, k)
    \/ Grow(p) \/ Granted(p)
Both(p) == LookAtGate(p) \/ StopReading(p) \/ Send(p) \/ LookElsewhere(p) \/ FirstBeat(p)
Writer(p) ==
    \/ Before(p) \/ TakeGate(p) \/ ReadNumber(p) \/ LookAtSlot(p) \/ Gone(p) \/ Write(p)
Next ==
    \/ \E p \in Readers : Reader(p)
    \/ \E p \in Writers : Writer(p) \/ StopWriting(p) \/ GiveBack(p) \/ DownGranted(p) \/ Open(p) \/ \E k \in 1..Slots : Down(p, k)
    \/ \E p \in Procs : Both(p) \/ Lose(p) \/ \E k \in 1..Slots : LateClaim(p, k)
    \/ FreeGate \/ \E k \in 1..Slots : FreeSlot(k)
    \/ \E a \in net : Arrive(a)

Spec == Init /\ [][Next]_vars
Fair ==
    /\ Spec
    /\ \A p \in Writers : WF_vars(Writer(p))
    /\ \A p \in Readers : WF_vars(Granted(p) \/ Both(p))

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

Working(p, at) == proc[p].at = at /\ Rightly(p)

Excludes == \A p, q \in Procs : p # q /\ Working(p, "writes") => ~Rightly(q)

NotTorn == ~res.torn

NoneRefused == res.refused => res.lost

Leads == \A p \in Writers : <>(proc[p].at = "writes")

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverBoth == ~(\E p \in Writers : proc[p].at = "waits" /\ Cardinality(proc[p].noted) = 2 /\ number > First)

NeverBeside ==
    ~(\E p, q \in Readers : p # q /\ Working(p, "reads") /\ Working(q, "reads") /\ gate.tok > 0 /\ gate.eff = 0 /\ gate.by = 0)

NeverAfterDeath ==
    ~(\E p \in Readers, q \in Writers : proc[p].at = "told" /\ slot[proc[p].k].by = 0 /\ Working(q, "writes"))

NeverLate == ~(\E a \in net : a.w /\ Working(a.p, "reads") /\ proc[a.p].shown /\ a.tok < res.seen)
=============================================================================
