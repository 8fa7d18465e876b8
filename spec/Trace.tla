------------------------------- MODULE Trace -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Checks that a trace is a behaviour of Tenure.tla, unreduced: each event  *)
(* is a step with the recorded versions, tokens and times. The highest      *)
(* number that TLC prints is the last event that fits.                      *)
EXTENDS Tenure, Sequences

CONSTANTS
    Events,
    Hosts,    \* the process of each machine
    Owners,   \* the owner name of each machine
    Usual     \* the usable window, as the processes computed it

VARIABLES
    i,        \* the next event
    now,      \* the time of the last one
    been,     \* every record that the store has held
    shown     \* when each process first saw each beat

traced == <<vars, i, now, been, shown>>

-----------------------------------------------------------------------------
(* Substitutions for operators of Tenure.tla.                                *)

\* Recorded times are rounded.
Rounding == 2
AtLeast(d) == (d * DriftDen) \div (DriftDen + DriftNum) - Rounding
AtMost(d) == (d * DriftDen) \div (DriftDen - DriftNum) + Rounding
KnownAs(p) == Owners[p]
Named == {Events[i].next.own}
\* No message is certainly lost.
Forever(w, m, k) == TRUE

-----------------------------------------------------------------------------
E == Events[i]
Same == UNCHANGED <<store, net, mach, log>>
Watches(p) == mach[p].phase \in {"wait", "leave"}

Sent(p) ==
    /\ mach'[p].out # None \/ E.k = "read"
    /\ LET o == mach'[p].out IN
       /\ o.k = E.k
       /\ E.k \notin {"read", "claim"} => o.prev.ver = E.prev.ver /\ o.prev.tok = E.prev.tok
       /\ E.k # "read" => o.next = E.next

Sends(p) ==
    /\ \/ E.k = "read" /\ Look(p)
       \/ E.k = "claim" /\ Claim(p, E.ver)
       \/ E.k = "takeover" /\ Takeover(p, E.ver)
       \/ E.k = "heartbeat" /\ Heartbeat(p, E.ver)
       \/ E.k = "abdicate" /\ Quit(p, E.ver)
       \/ E.k = "release" /\ Release(p, E.ver)
       \/ E.k = "request" /\ Ask(p, E.ver, E.next.req)
       \/ E.k = "force release" /\ (Free(p, E.ver) \/ Revoke(p, E.ver))
    /\ Sent(p)

\* A release or a quit implies the end of the work or of heartbeats.
Turned(p) ==
    /\ E.do = "send" /\ mach[p].phase \in {"hold", "quiet"}
    /\ \/ E.k = "release" /\ Done(p)
       \/ E.k = "abdicate" /\ mach[p].phase = "hold" /\ Quiet(p)

Applied(p) ==
    \E w \in net :
        /\ w.by = p /\ w.ver = E.ver /\ w.k = E.k
        /\ Apply(w)
        /\ store' = E.rec

Refused(p) ==
    /\ store = E.rec
    /\ \A w \in net : w.by = p /\ w.ver = E.ver => ~Fits(w, store)
    /\ IF mach[p].out # None /\ mach[p].out.ver = E.ver /\ mach[p].out.res = None THEN Refuse(p) ELSE Same

\* The reply may have been overtaken by a newer one.
Stage(s) == CASE s = "held" -> 1 [] s = "reserved" -> 2 [] s = "released" -> 3 [] OTHER -> 0
Before(r, s) == r.tok < s.tok \/ (r.tok = s.tok /\ Stage(r.st) < Stage(s.st))

\* A beat counts from the first reply that showed it.
ShownBefore(p, r) == {s \in shown : s.host = Hosts[p] /\ s.tok = r.tok /\ s.st = r.st /\ s.beat = r.beat}
Dated(p, m) ==
    LET s == ShownBefore(p, m.rec) IN
    IF m.phase # "wait" \/ s = {} THEN m
    ELSE LET since == now - (CHOOSE t \in s : TRUE).at IN [m EXCEPT !.age = IF since > Old THEN Old ELSE IF since > @ THEN since ELSE @]

Behind(p, r, s) == Before(r, s) \/ (r.tok = s.tok /\ r.st = s.st /\ ShownBefore(p, r) # {})

\* The acquirers of a process share its view of the record.
Shared(p, m, o, r) ==
    \E overtaken \in BOOLEAN :
        /\ overtaken => Behind(p, r, mach[p].rec)
        /\ mach' = [q \in Machines |->
                IF q = p THEN IF overtaken /\ m.phase = mach[p].phase THEN [m EXCEPT !.rec = mach[p].rec, !.age = mach[p].age] ELSE Dated(p, m)
                ELSE IF Hosts[q] = Hosts[p] /\ mach[q].phase = "wait" /\ Watches(p) /\ ~(overtaken /\ Behind(q, r, mach[q].rec))
                     THEN Dated(q, Seen(mach[q], o, r)) ELSE mach[q]]

Answered(p) ==
    LET o == mach[p].out IN
    /\ o # None
    /\ o.k = E.k
    /\ o.k # "read" => o.ver = E.ver
    /\ E.rec \in been
    /\ E.out = "applied" /\ o.k # "read" => o.res = E.rec
    /\ E.out = "conflicted" => o.k # "read" /\ o.res # None
    /\ \E m \in Told(p, o, E.rec) : Shared(p, m, o, E.rec) /\ log' = Latest(p, m)
    /\ UNCHANGED <<store, net>>

Untold(p) ==
    /\ mach[p].out # None /\ mach[p].out.k = E.k
    /\ IF E.out = "unknown" THEN Timeout(p)
       ELSE /\ mach' = [mach EXCEPT ![p].out = None]
            /\ net' = {w \in net : w.by # p \/ w.ver # E.ver}
            /\ UNCHANGED <<store, log>>

Ended(p) ==
    CASE mach[p].phase # "hold" -> Same
      [] E.cause = "expired" -> Turns(p, [mach[p] EXCEPT !.age = Old])
      [] E.cause = "asked" -> mach[p].rec.req # None /\ Same
      [] E.cause = "superseded" -> FALSE
      [] OTHER -> Same

Happens ==
    LET p == E.p IN
    CASE E.do = "crash" -> /\ mach' = [q \in Machines |-> IF Hosts[q] = E.host THEN Idle ELSE mach[q]]
                           /\ UNCHANGED <<store, net, log>>
      [] E.do = "send" -> Sends(p)
      [] E.do = "apply" -> IF E.out = "applied" THEN Applied(p) ELSE Refused(p)
      [] E.do = "reply" -> IF E.out \in {"applied", "conflicted"} THEN Answered(p) ELSE Untold(p)
      [] E.do = "grant" -> mach[p].phase = "hold" /\ mach[p].rec.tok = E.rec.tok /\ Same
      [] E.do = "check" -> Believes(p) /\ Same
      [] E.do = "end" -> Ended(p)
      [] E.do = "quiet" -> IF mach[p].phase = "hold" THEN Quiet(p) ELSE Same
      [] E.do = "done" -> IF mach[p].phase \in {"hold", "quiet"} THEN Done(p) ELSE Same
      [] E.do = "leave" -> GiveUp(p) \/ (~ENABLED GiveUp(p) /\ Same)

Elapses == now < E.at /\ Pass(E.at - now) /\ now' = E.at /\ UNCHANGED <<i, been, shown>>
Goes ==
    /\ now = E.at
    /\ \/ Turned(E.p) /\ UNCHANGED i
       \/ /\ Happens /\ i' = i + 1
          /\ TLCGet(1) < i => TLCSet(1, i) /\ PrintT(<<"fits", i>>)
          /\ i = Len(Events) => (PrintT("accepted") /\ TLCSet("exit", TRUE))
    /\ been' = been \cup {store'}
    /\ shown' = CASE E.do = "crash" -> {s \in shown : s.host # E.host}
                  [] E.do = "reply" /\ E.out \in {"applied", "conflicted"} /\ i' # i /\ Watches(E.p) /\ ShownBefore(E.p, E.rec) = {} ->
                        shown \cup {[host |-> Hosts[E.p], tok |-> E.rec.tok, st |-> E.rec.st, beat |-> E.rec.beat, at |-> now]}
                  [] OTHER -> shown
    /\ UNCHANGED now

TraceInit == Init /\ i = 1 /\ now = 0 /\ been = {Absent} /\ shown = {} /\ TLCSet(1, 0)
TraceNext == i <= Len(Events) /\ (Elapses \/ Goes)
TraceSpec == TraceInit /\ [][TraceNext]_traced
=============================================================================
