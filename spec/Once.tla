-------------------------------- MODULE Once --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Once of package once: hosts are asked to run slots, the data of a lock   *)
(* hold the ledger, and the network loses, delays and repeats writes.       *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Machines,   \* hosts, each with one call in progress
    Slots,      \* numbers above 0
    MaxToken,   \* the last term
    Room,       \* the spans of slots that the ledger keeps above its floor
    Uses, Wrong

VARIABLES
    store,      \* the lock's record, with the ledger
    net,
    mach,
    past

vars == <<store, net, mach, past>>

-----------------------------------------------------------------------------
(* The ledger: the begun slots, as a floor and a set above it; the last run, *)
(* by slot and term, and its end; earlier runs without an end (open).        *)
(* Spoilt: another program has overwritten it.                               *)

Empty == [floor |-> 0, begun |-> {}, last |-> 0, tok |-> 0, end |-> "done", open |-> {}]
Spoilt == [Empty EXCEPT !.last = -1, !.end = "spoilt"]
Free(l, s) == s > l.floor /\ s \notin l.begun

\* If there are too many spans, the floor rises to the end of the lowest: the gap
\* is given up, but no begun slot is forgotten.
Joined(l) == LET up == {f \in {l.floor} \cup l.begun : (l.floor + 1)..f \subseteq l.begun}
                 top == CHOOSE f \in up : \A g \in up : g <= f IN
             [l EXCEPT !.floor = top, !.begun = {s \in @ : s > top}]
Spans(l) == Cardinality({s \in l.begun : s - 1 \notin l.begun})
Bounded(l) ==
    LET lowest == CHOOSE s \in l.begun : \A t \in l.begun : s <= t IN
    IF Spans(l) <= Room THEN l
    ELSE IF "lowest dropped" \in Wrong THEN [l EXCEPT !.begun = @ \ {lowest}]
    ELSE Joined([l EXCEPT !.floor = lowest, !.begun = @ \ {lowest}])

AnyOrder == "out of order" \in Uses
Mark(l, s, t) ==
    LET older == IF AnyOrder /\ l.end = "open" THEN l.open \cup {l.last} ELSE l.open
        run == [l EXCEPT !.last = s, !.tok = t, !.end = "open", !.open = older \ {s}] IN
    IF ~AnyOrder THEN [run EXCEPT !.floor = IF s > @ \/ "as text" \in Wrong THEN s ELSE @, !.begun = {}]
    ELSE IF ~Free(l, s) THEN run
    ELSE Bounded(Joined([run EXCEPT !.begun = @ \cup {s}]))
Done(l) == [l EXCEPT !.end = "done"]

Opened(l, s) ==
    LET all == {t \in 1..l.floor : t # s} \cup (l.begun \ {s}) IN
    IF "reset opens all above" \in Wrong THEN [Joined([l EXCEPT !.floor = 0, !.begun = {t \in all : t < s}]) EXCEPT !.end = "done", !.open = {}]
    ELSE [Joined([l EXCEPT !.floor = 0, !.begun = all]) EXCEPT !.end = "done", !.open = @ \ {s}]

Rank(s) == IF "as text" \in Wrong /\ s >= 10 THEN s \div 10 ELSE s

\* What ledger.refuse allows.
MayRun(l, s) ==
    /\ l.end # "spoilt" \/ "spoilt is empty" \in Wrong
    /\ \/ Rank(s) > Rank(l.floor) /\ s \notin l.begun
       \/ "redo" \in Uses /\ s = l.last /\ l.end = "open"
       \/ "redo" \in Uses /\ AnyOrder /\ s \in l.open
       \/ "redo ended" \in Wrong /\ AnyOrder /\ s \in l.begun

-----------------------------------------------------------------------------
(* The lock of Tenure.tla, assumed correct: until a lease ends, at any       *)
(* moment, nobody else gets in.                                              *)

Unused == [st |-> "absent", tok |-> 0, led |-> Empty]

(* Machines.                                                                 *)
(*   idle                                                                    *)
(*   wait   acquires the lock                                                *)
(*   held   has the lock, knows the ledger                                   *)
(*   mark   marks the slot as begun                                          *)
(*   work   the work runs                                                    *)
(*   ended  it has returned; the release records its end                     *)
(*   back   the release takes the mark back                                  *)
(*   leave  the release leaves the ledger alone                              *)
(* good: Check passes. got: a write has taken the lock. yes: the write in    *)
(* flight was applied. led: its ledger; was: the one before the mark.        *)

Idle == [at |-> "idle", slot |-> 0, tok |-> 0, good |-> FALSE, got |-> FALSE, yes |-> FALSE, led |-> Empty, was |-> Empty]

Mine(p) == store.st = "held" /\ store.tok = mach[p].tok
Good(p) == mach[p].good \/ ("no check" \in Wrong /\ mach[p].at = "mark")

Standing == \E p \in Machines : mach[p].good /\ mach[p].tok = store.tok

Began == {past.began[i] : i \in 1..Len(past.began)}

Turns(p, m) == mach' = [mach EXCEPT ![p] = m]
Still == UNCHANGED <<store, past>>

\* Claims applied late belong to nobody.
Orphaned(p, ws) == {IF w.by = p /\ w.me THEN [w EXCEPT !.me = FALSE, !.by = "nobody"] ELSE w : w \in ws}
Ends(p) == Turns(p, Idle) /\ net' = Orphaned(p, net)

-----------------------------------------------------------------------------
(* The store.                                                                *)

Write(k, p, l) == [k |-> k, by |-> p, me |-> FALSE, tok |-> mach[p].tok, led |-> l]

Fits(w) ==
    CASE w.k = "claim" -> store.st # "held"
      [] w.k = "note" -> store.st = "released" /\ store.tok = w.tok
      [] OTHER -> store.st = "held"

Written(w) ==
    CASE w.k \in {"claim", "take"} ->
            [st |-> "held", tok |-> store.tok + 1,
             led |-> IF "claim with data" \in Wrong THEN [w.led EXCEPT !.tok = store.tok + 1] ELSE store.led]
      [] w.k = "set" -> [store EXCEPT !.led = w.led]
      [] w.k = "free" -> [store EXCEPT !.st = "released", !.led = w.led]
      [] w.k = "note" -> [store EXCEPT !.led = w.led]

Takes(w) == w.k \in {"claim", "take"}
Answers(w, m) == (w.k = "set" /\ m.at = "mark") \/ (w.k = "free" /\ m.at \in {"ended", "back", "leave"})
Apply(w) ==
    LET m == mach[w.by] IN
    /\ w \in net /\ Fits(w) /\ Written(w).tok <= MaxToken
    /\ store' = Written(w)
    /\ net' = LET claims == {u \in net : u.k = "claim"} IN IF w.me THEN Orphaned(w.by, claims) ELSE claims
    /\ IF Takes(w) /\ w.me
       THEN Turns(w.by, [m EXCEPT !.got = TRUE, !.good = TRUE, !.tok = store'.tok,
                                  !.led = IF "ledger before the lock" \in Wrong THEN @ ELSE store'.led])
       ELSE IF ~Takes(w) /\ w.tok = m.tok /\ Answers(w, m) THEN Turns(w.by, [m EXCEPT !.yes = TRUE])
       ELSE UNCHANGED mach
    /\ past' = IF w.k = "take" /\ \E b \in Began : b[2] = store.tok THEN [past EXCEPT !.lost = @ \cup {store.tok}] ELSE past

Spoil ==
    /\ "spoil" \in Uses /\ ~Standing /\ store.led.end # "spoilt"
    /\ store' = [store EXCEPT !.led = Spoilt]
    /\ net' = {w \in net : w.k = "claim"}
    /\ UNCHANGED <<mach, past>>
Delete ==
    /\ "delete" \in Uses /\ store.st = "released" /\ store.led # Empty
    /\ store' = [store EXCEPT !.st = "absent", !.led = Empty]
    /\ net' = {w \in net : w.k = "claim"}
    /\ UNCHANGED <<mach, past>>

Reset(s) ==
    /\ "reset" \in Uses /\ store.st = "released" /\ ~Free(store.led, s) /\ s \notin past.opened /\ store.tok < MaxToken
    /\ store' = [store EXCEPT !.tok = @ + 1, !.led = Opened(@, s)]
    /\ net' = {w \in net : w.k = "claim"}
    /\ past' = [past EXCEPT !.opened = @ \cup {s}]
    /\ UNCHANGED mach

-----------------------------------------------------------------------------
(* A call.                                                                   *)

\* Any slot at any time.
Call(p, s) ==
    /\ mach[p].at = "idle"
    /\ Turns(p, [Idle EXCEPT !.at = "wait", !.slot = s,
                             !.led = IF "ledger before the lock" \in Wrong THEN store.led ELSE Empty])
    /\ UNCHANGED net /\ Still

Acquire(p) ==
    LET m == mach[p]
        data == IF "claim with data" \in Wrong THEN Mark(store.led, m.slot, 0) ELSE Empty
        send(k) == net' = net \cup {[Write(k, p, data) EXCEPT !.me = TRUE, !.tok = 0]} IN
    /\ m.at = "wait" /\ ~m.got
    /\ "claim with data" \in Wrong => MayRun(store.led, m.slot)
    /\ \/ store.st # "held" /\ send("claim")
       \/ store.st = "held" /\ ~Standing /\ send("take")
    /\ UNCHANGED mach /\ Still

Grant(p) ==
    LET m == mach[p] IN
    /\ m.at = "wait" /\ m.got /\ m.good
    /\ Turns(p, IF "claim with data" \in Wrong THEN [m EXCEPT !.at = "mark", !.yes = TRUE] ELSE [m EXCEPT !.at = "held"])
    /\ UNCHANGED net /\ Still

Refuse(p) ==
    LET m == mach[p] IN
    /\ m.at = "held" /\ (~MayRun(m.led, m.slot) \/ ~m.good)
    /\ Turns(p, [m EXCEPT !.at = "leave"])
    /\ UNCHANGED net /\ Still

Begin(p) ==
    LET m == mach[p] IN
    /\ m.good
    /\ \E s \in Slots :
        /\ \/ m.at = "held" /\ s = m.slot /\ MayRun(m.led, s)
           \/ m.at = "ended" /\ "catch up" \in Uses /\ s > m.slot /\ MayRun(m.led, s)
        /\ Turns(p, [m EXCEPT !.at = "mark", !.slot = s, !.yes = FALSE, !.was = m.led, !.led = Mark(m.led, s, m.tok)])
    /\ UNCHANGED net /\ Still

Set(p) ==
    LET m == mach[p] IN
    /\ m.at = "mark" /\ ~m.yes /\ Mine(p)
    /\ net' = net \cup {Write("set", p, m.led)}
    /\ UNCHANGED mach /\ Still

\* The reply may be late: Check again.
Work(p) ==
    LET m == mach[p] IN
    /\ m.at = "mark" /\ Good(p)
    /\ m.yes \/ "unconfirmed" \in Wrong
    /\ Turns(p, [m EXCEPT !.at = "work", !.yes = FALSE])
    /\ past' = [past EXCEPT !.began = Append(@, <<m.slot, m.tok>>)]
    /\ UNCHANGED <<store, net>>

\* A valid lease allows taking the mark back; otherwise the caller gets ErrNotRun.
Stop(p) ==
    LET m == mach[p]
        quiet == "silent" \in Wrong IN
    /\ m.at = "mark"
    /\ Turns(p, IF m.good THEN [m EXCEPT !.at = "back", !.yes = FALSE, !.led = m.was] ELSE [m EXCEPT !.at = "leave", !.yes = FALSE])
    /\ past' = IF m.good \/ quiet THEN past ELSE [past EXCEPT !.told = @ \cup {<<m.slot, m.tok>>}]
    /\ UNCHANGED <<store, net>>

Return(p) ==
    /\ mach[p].at = "work"
    /\ Turns(p, [mach[p] EXCEPT !.at = "ended", !.led = Done(@)])
    /\ UNCHANGED net /\ Still

Apart == "end by itself" \in Wrong
Release(p) ==
    LET m == mach[p] IN
    /\ m.at \in {"ended", "back", "leave"} /\ ~m.yes /\ Mine(p)
    /\ net' = net \cup {Write("free", p, IF Apart /\ m.at = "ended" THEN [m.led EXCEPT !.end = "open"] ELSE m.led)}
    /\ UNCHANGED mach /\ Still
Note(p) ==
    LET m == mach[p] IN
    /\ Apart /\ m.at = "ended" /\ store.st = "released" /\ store.tok = m.tok /\ store.led.end = "open"
    /\ net' = net \cup {Write("note", p, m.led)}
    /\ UNCHANGED mach /\ Still

\* Only a confirmed release proves that the mark is gone.
End(p) ==
    LET m == mach[p]
        run == {<<m.slot, m.tok>>}
        sure == m.yes \/ "surely taken back" \in Wrong IN
    /\ m.at \in {"ended", "back", "leave"}
    /\ past' = IF m.at # "back" THEN past
               ELSE IF sure THEN [past EXCEPT !.clean = @ \cup run] ELSE [past EXCEPT !.told = @ \cup run]
    /\ Ends(p)
    /\ UNCHANGED store

GiveUp(p) ==
    /\ mach[p].at = "wait"
    /\ Ends(p) /\ Still

Expire(p) ==
    LET m == mach[p] IN
    /\ m.good
    /\ Turns(p, IF m.at = "wait" THEN [m EXCEPT !.good = FALSE, !.got = FALSE, !.tok = 0, !.led = IF "ledger before the lock" \in Wrong THEN @ ELSE Empty]
                ELSE [m EXCEPT !.good = FALSE])
    /\ UNCHANGED net /\ Still

Crash(p) ==
    LET m == mach[p] IN
    /\ "crash" \in Uses /\ m.at \in {"mark", "work", "back"}
    /\ Ends(p)
    /\ past' = IF m.at = "work" THEN past ELSE [past EXCEPT !.died = @ \cup {m.tok}]
    /\ UNCHANGED store

-----------------------------------------------------------------------------
Init ==
    /\ store = Unused
    /\ net = {}
    /\ mach = [p \in Machines |-> Idle]
    /\ past = [began |-> <<>>, told |-> {}, clean |-> {}, died |-> {}, lost |-> {}, opened |-> {}]

Next ==
    \/ \E w \in net : Apply(w)
    \/ Spoil \/ Delete \/ \E s \in Slots : Reset(s)
    \/ \E p \in Machines :
        \/ \E s \in Slots : Call(p, s)
        \/ Acquire(p) \/ Grant(p) \/ Refuse(p) \/ Begin(p) \/ Set(p) \/ Work(p) \/ Stop(p)
        \/ Return(p) \/ Release(p) \/ Note(p) \/ End(p) \/ GiveUp(p) \/ Expire(p) \/ Crash(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

Pairs == {<<i, j>> \in (1..Len(past.began)) \X (1..Len(past.began)) : i < j}
Slot(i) == past.began[i][1]
Token(i) == past.began[i][2]

AtMostOnce == \A q \in Pairs : Slot(q[1]) # Slot(q[2]) \/ Slot(q[1]) \in past.opened

InOrder == \A q \in Pairs : (Slot(q[1]) <= Slot(q[2]) \/ AnyOrder) /\ Token(q[1]) <= Token(q[2])

RedoneLost == \A q \in Pairs : Slot(q[1]) = Slot(q[2]) => Token(q[1]) \in past.lost

Marked == store.led.end = "spoilt" \/ \A b \in Began : ~Free(store.led, b[1]) \/ b[1] \in past.opened

LedgerRises ==
    [][LET l == store.led IN
        (\E s \in Slots : ~Free(l, s) /\ Free(store'.led, s) /\ s \notin past'.opened) =>
            \/ store'.led.end = "spoilt"
            \/ l.end = "open" /\ l.tok = store.tok /\ <<l.last, l.tok>> \notin Began]_vars

EndsStay ==
    [][store.led.end = "done" /\ store'.led.last = store.led.last /\ store.led.last \notin past.opened => store'.led.end = "done"]_vars

ToldTrue == past.told \cap Began = {}

CleanTrue == past.clean \cap (Began \cup {<<store.led.last, store.led.tok>>}) = {}

Accounted ==
    LET l == store.led IN
    l.end = "open" =>
        \/ <<l.last, l.tok>> \in Began \cup past.told
        \/ l.tok \in past.died
        \/ \E p \in Machines : mach[p].tok = l.tok /\ mach[p].at \in {"mark", "back"}

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverNext ==
    ~(store.led.end = "done" /\ \E q \in Pairs : Slot(q[1]) < Slot(q[2]) /\ Token(q[1]) \in past.lost)

NeverRedone == ~(store.led.end = "done" /\ store.st = "released" /\ \E q \in Pairs : Slot(q[1]) = Slot(q[2]) /\ Slot(q[2]) = store.led.last)

NeverTakenBack == ~(\E c \in past.clean, b \in Began : c[1] = b[1] /\ c[2] < b[2])

NeverTold == ~(\E t \in past.told : <<store.led.last, store.led.tok>> = t /\ \A p \in Machines : mach[p].at # "leave")

NeverBelow == ~(\E q \in Pairs : Slot(q[1]) > Slot(q[2]))

NeverGivenUp == \A s \in Slots : Free(store.led, s) \/ s \in {b[1] : b \in Began} \/ store.led.end = "open" \/ past.told # {} \/ past.died # {}

NeverReopened == ~(\E q \in Pairs : Slot(q[1]) = Slot(q[2]) /\ Slot(q[1]) \in past.opened)

NeverCaught == ~(\E q \in Pairs : Token(q[1]) = Token(q[2]))

Symmetry == Permutations(Machines)
=============================================================================
