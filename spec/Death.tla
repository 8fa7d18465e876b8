-------------------------------- MODULE Death --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* A process that holds a lease is killed, its command works on, and a      *)
(* guardian that sees the end of both frees the lock.                       *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Leases,     \* acquires under one owner name, numbered from 1
    MaxVersion, \* the number of writes
    MaxDeletes, \* how often an operator deletes the record
    Wrong

VARIABLES
    store,
    net,
    lease,
    guard,
    count       \* versions and deletions so far

vars == <<store, net, lease, guard, count>>

-----------------------------------------------------------------------------
(* The record: state, the lease of its beat (id), version, token.            *)

Absent == [st |-> "absent", id |-> 0, ver |-> 0, tok |-> 0]
Held(i, v, t) == [st |-> "held", id |-> i, ver |-> v, tok |-> t]

(* A lease.                                                                  *)
(*   idle                                                                    *)
(*   wait    its claim is in flight                                          *)
(*   holds   granted; Check passes                                           *)
(*   leaves  its work has returned; it releases                              *)
(*   dead    its process was killed                                          *)
(*   over                                                                    *)
(* ver is the last version it knows, first that of its grant. told: the      *)
(* guardian knows the lease. begun, work: the command has started, still     *)
(* runs. late: its last requests to the resource may still take effect,      *)
(* which the lease time and the grace allow for.                             *)

Idle == [at |-> "idle", ver |-> 0, first |-> 0, tok |-> 0, told |-> FALSE, begun |-> FALSE, work |-> FALSE, late |-> FALSE]

(* A guardian: watch, seen (it read the record of the dead), sent (its       *)
(* release), freed, done.                                                    *)

Watch == [at |-> "watch", ver |-> 0, new |-> 0]

Fresh == count.ver + 1
Room == count.ver < MaxVersion
Used == count' = [count EXCEPT !.ver = Fresh]
Sends(w) == net' = net \cup {w}
Becomes(i, l) == lease' = [lease EXCEPT ![i] = l]
Guards(i, g) == guard' = [guard EXCEPT ![i] = g]

-----------------------------------------------------------------------------
(* The store. A swap whose version is gone is dropped.                       *)

Kept == "version kept" \in Wrong
Fits(w) == IF w.k = "claim" THEN store.st # "held" ELSE store.st # "absent" /\ store.ver = w.prev
Apply(w) ==
    /\ w \in net /\ Fits(w)
    /\ store' = CASE w.k = "claim" -> Held(w.id, w.ver, store.tok + 1)
                  [] w.k = "take" -> Held(w.id, w.ver, store.tok + 1)
                  [] w.k = "beat" -> [store EXCEPT !.st = "held", !.ver = w.ver]
                  [] w.k = "free" -> [store EXCEPT !.st = "released", !.ver = w.ver]
    /\ net' = {u \in net : u # w /\ (u.k = "claim" \/ u.prev = store'.ver \/ (Kept /\ u.k = "beat"))}
    /\ UNCHANGED <<lease, guard, count>>

Delete ==
    /\ count.del < MaxDeletes /\ store.st = "released"
    /\ store' = Absent
    /\ net' = {w \in net : w.k = "claim"}
    /\ count' = [count EXCEPT !.del = @ + 1]
    /\ UNCHANGED <<lease, guard>>

-----------------------------------------------------------------------------
(* A lease.                                                                  *)

Stood == store.st = "held" /\ lease[store.id].at = "dead" /\ ~lease[store.id].work /\ ~lease[store.id].late

Acquire(i) ==
    /\ lease[i].at = "idle" /\ Room
    /\ \/ store.st # "held" /\ Sends([k |-> "claim", id |-> i, prev |-> 0, ver |-> Fresh])
       \/ Stood /\ Sends([k |-> "take", id |-> i, prev |-> store.ver, ver |-> Fresh])
    /\ Becomes(i, [Idle EXCEPT !.at = "wait"])
    /\ Used /\ UNCHANGED <<store, guard>>

\* Its claim came too late.
Again(i) ==
    /\ lease[i].at = "wait" /\ ~(store.st = "held" /\ store.id = i)
    /\ ~\E w \in net : w.id = i
    /\ Becomes(i, Idle) /\ UNCHANGED <<store, net, guard, count>>

Grant(i) ==
    /\ lease[i].at = "wait" /\ store.st = "held" /\ store.id = i
    /\ Becomes(i, [lease[i] EXCEPT !.at = "holds", !.ver = store.ver, !.first = store.ver, !.tok = store.tok])
    /\ UNCHANGED <<store, net, guard, count>>

\* The guardian must know the lease first.
Tell(i) ==
    /\ lease[i].at = "holds" /\ ~lease[i].told
    /\ "told late" \in Wrong => lease[i].begun
    /\ Becomes(i, [lease[i] EXCEPT !.told = TRUE])
    /\ UNCHANGED <<store, net, guard, count>>
Start(i) ==
    /\ lease[i].at = "holds" /\ ~lease[i].begun
    /\ lease[i].told \/ "told late" \in Wrong
    /\ Becomes(i, [lease[i] EXCEPT !.begun = TRUE, !.work = TRUE])
    /\ UNCHANGED <<store, net, guard, count>>

Beat(i) ==
    /\ lease[i].at = "holds" /\ Room
    /\ Sends([k |-> "beat", id |-> i, prev |-> lease[i].ver, ver |-> Fresh])
    /\ Used /\ UNCHANGED <<store, lease, guard>>
Beaten(i) ==
    /\ lease[i].at = "holds" /\ store.st = "held" /\ store.id = i /\ lease[i].ver # store.ver
    /\ Becomes(i, [lease[i] EXCEPT !.ver = store.ver])
    /\ UNCHANGED <<store, net, guard, count>>

Leave(i) ==
    /\ lease[i].at = "holds" /\ Room
    /\ Becomes(i, [lease[i] EXCEPT !.at = "leaves", !.work = FALSE])
    /\ Sends([k |-> "free", id |-> i, prev |-> lease[i].ver, ver |-> Fresh])
    /\ Used /\ UNCHANGED <<store, guard>>

Kill(i) ==
    /\ lease[i].at = "holds"
    /\ Becomes(i, [lease[i] EXCEPT !.at = "dead", !.late = lease[i].work])
    /\ UNCHANGED <<store, net, guard, count>>
Dies(i) ==
    /\ lease[i].at = "dead" /\ lease[i].work
    /\ Becomes(i, [lease[i] EXCEPT !.work = FALSE])
    /\ UNCHANGED <<store, net, guard, count>>
Lands(i) ==
    /\ lease[i].at = "dead" /\ ~lease[i].work /\ lease[i].late
    /\ Becomes(i, [lease[i] EXCEPT !.late = FALSE])
    /\ UNCHANGED <<store, net, guard, count>>

\* An operator.
Free ==
    /\ Stood /\ Room
    /\ Sends([k |-> "free", id |-> 0, prev |-> store.ver, ver |-> Fresh])
    /\ Used /\ UNCHANGED <<store, lease, guard>>

-----------------------------------------------------------------------------
(* The guardian of a lease whose process was killed.                         *)

Knows(i) == lease[i].at = "dead" /\ lease[i].told /\ (~lease[i].work \/ "early" \in Wrong)

\* The record of the dead is known by its beat.
Same(i) ==
    IF "owner and token" \in Wrong THEN store.tok = lease[i].tok
    ELSE IF "version" \in Wrong THEN store.ver = lease[i].first
    ELSE store.id = i
Is(i) == (store.st = "held" /\ Same(i)) \/ ("anything" \in Wrong /\ store.st = "released")

Look(i) ==
    /\ Knows(i) /\ guard[i].at = "watch"
    /\ Is(i) \/ store.st = "held"
    /\ Guards(i, IF Is(i) THEN [Watch EXCEPT !.at = "seen", !.ver = store.ver] ELSE [Watch EXCEPT !.at = "done"])
    /\ UNCHANGED <<store, net, lease, count>>

\* A claim of the dead may be in flight.
Enough(i) ==
    /\ Knows(i) /\ guard[i].at = "watch" /\ store.st # "held" /\ ~\E w \in net : w.id = i /\ w.k \in {"claim", "take"}
    /\ Guards(i, [Watch EXCEPT !.at = "done"])
    /\ UNCHANGED <<store, net, lease, count>>

ReleaseCrashed(i) ==
    /\ guard[i].at = "seen" /\ Room
    /\ lease[i].late => ("no grace" \in Wrong \/ "early" \in Wrong)
    /\ LET v == IF Kept THEN guard[i].ver ELSE Fresh IN
        /\ Sends([k |-> "free", id |-> 0, prev |-> guard[i].ver, ver |-> v])
        /\ Guards(i, [guard[i] EXCEPT !.at = "sent", !.new = v])
    /\ Used /\ UNCHANGED <<store, lease>>

Answer(i) ==
    /\ guard[i].at = "sent"
    /\ store.ver # guard[i].ver \/ (Kept /\ store.st # "held")
    /\ Guards(i, IF store.ver = guard[i].new THEN [Watch EXCEPT !.at = "freed"]
                 ELSE IF "one read" \in Wrong THEN [Watch EXCEPT !.at = "done"] ELSE Watch)
    /\ UNCHANGED <<store, net, lease, count>>

-----------------------------------------------------------------------------
Init ==
    /\ store = Absent
    /\ net = {}
    /\ lease = [i \in Leases |-> Idle]
    /\ guard = [i \in Leases |-> Watch]
    /\ count = [ver |-> 0, del |-> 0]

Next ==
    \/ \E w \in net : Apply(w)
    \/ Delete \/ Free
    \/ \E i \in Leases :
        \/ Acquire(i) \/ Again(i) \/ Grant(i) \/ Tell(i) \/ Start(i) \/ Beat(i) \/ Beaten(i)
        \/ Leave(i) \/ Kill(i) \/ Dies(i) \/ Lands(i)
        \/ Look(i) \/ Enough(i) \/ ReleaseCrashed(i) \/ Answer(i)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

Holds(i) == lease[i].at = "holds"

OneAtWork == Cardinality({i \in Leases : Holds(i) \/ lease[i].work}) <= 1

NoneBeside == \A i, j \in Leases : i # j /\ Holds(i) => ~lease[j].late

Guarded == \A i \in Leases : Holds(i) => store.st = "held" /\ store.id = i

ReleasedStays == [][store.st = "released" /\ store'.st # "absent" => store' = store \/ (store'.st = "held" /\ store'.tok = store.tok + 1)]_vars

Freed ==
    \A i \in Leases :
        lease[i].at = "dead" /\ lease[i].begun /\ ~lease[i].work /\ (guard[i].at \in {"freed", "done"} \/ ~lease[i].told)
            => ~(store.st = "held" /\ store.id = i)

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverFreed ==
    ~(\E i, j \in Leases : guard[i].at = "freed" /\ lease[i].ver # lease[i].first /\ Holds(j))

NeverAgain ==
    ~(\E i, j \in Leases : i # j /\ Knows(i) /\ guard[i].at = "watch" /\ Holds(j) /\ lease[i].tok = lease[j].tok)
=============================================================================
