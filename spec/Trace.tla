------------------------------- MODULE Trace -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Whether a trace is a behaviour of Tenure.tla, with nothing left out of   *)
(* it. Package internal/trace writes a module that extends this one and     *)
(* names the events; each must be a step of the model with the versions,    *)
(* tokens and times that the trace tells. It is accepted if TLC finds a way *)
(* through all of them, which it prints. If not, the highest number that it *)
(* prints is that of the last event that fits.                              *)
EXTENDS Tenure, Sequences

CONSTANTS
    Events,   \* the trace
    Hosts,    \* the process of each machine
    Owners,   \* the name by which each machine is known
    Usual     \* the window, by the processes' own reckoning

VARIABLES
    i,        \* the next event
    now,      \* the time of the last one
    been,     \* every record that the store has had
    shown     \* the signs of life that each process was shown, and when first

traced == <<vars, i, now, been, shown>>

-----------------------------------------------------------------------------
(* What the configuration puts in the place of operators of Tenure.tla.      *)

\* Times in a trace are rounded.
Rounding == 2
AtLeast(d) == (d * DriftDen) \div (DriftDen + DriftNum) - Rounding
AtMost(d) == (d * DriftDen) \div (DriftDen - DriftNum) + Rounding
KnownAs(p) == Owners[p]
Named == {Events[i].next.own}
\* Nothing is lost for certain as long as the trace goes on.
Forever(w, m, k) == TRUE

-----------------------------------------------------------------------------
E == Events[i]
Same == UNCHANGED <<store, net, mach, log>>
Watches(p) == mach[p].phase \in {"wait", "leave"}

Sent(p) ==
    /\ mach'[p].out # None \/ E.k = "look"
    /\ LET o == mach'[p].out IN
       /\ o.k = E.k
       /\ E.k \notin {"look", "claim"} => o.prev.ver = E.prev.ver /\ o.prev.tok = E.prev.tok
       /\ E.k # "look" => o.next = E.next

Sends(p) ==
    /\ \/ E.k = "look" /\ Look(p)
       \/ E.k = "claim" /\ Claim(p, E.ver)
       \/ E.k = "takeover" /\ Takeover(p, E.ver)
       \/ E.k = "heartbeat" /\ Heartbeat(p, E.ver)
       \/ E.k = "quit" /\ Quit(p, E.ver)
       \/ E.k = "release" /\ Release(p, E.ver)
       \/ E.k = "ask" /\ Ask(p, E.ver, E.next.req)
       \/ E.k = "free" /\ (Free(p, E.ver) \/ Revoke(p, E.ver))
    /\ Sent(p)

\* A release or a quit says by itself that the work has returned, or that
\* heartbeats end.
Turned(p) ==
    /\ E.do = "send" /\ mach[p].phase \in {"hold", "quiet"}
    /\ \/ E.k = "release" /\ Done(p)
       \/ E.k = "quit" /\ mach[p].phase = "hold" /\ Quiet(p)

Applied(p) ==
    \E w \in net :
        /\ w.by = p /\ w.ver = E.ver /\ w.k = E.k
        /\ Apply(w)
        /\ store' = E.rec

\* A write that the store refuses, whether anybody waits for the answer or not.
Refused(p) ==
    /\ store = E.rec
    /\ \A w \in net : w.by = p /\ w.ver = E.ver => ~Fits(w, store)
    /\ IF mach[p].out # None /\ mach[p].out.ver = E.ver /\ mach[p].out.res = None THEN Refuse(p) ELSE Same

\* What is older than what was seen already has been overtaken, perhaps.
Stage(s) == CASE s = "held" -> 1 [] s = "reserved" -> 2 [] s = "released" -> 3 [] OTHER -> 0
Before(r, s) == r.tok < s.tok \/ (r.tok = s.tok /\ Stage(r.st) < Stage(s.st))

\* A sign of life counts from the first reply that showed it, also where a read that
\* was behind has shown an older one since. (Tenure.tla counts from the last time
\* that it was another one, which is later: there no read is behind.)
ShownBefore(p, r) == {s \in shown : s.host = Hosts[p] /\ s.tok = r.tok /\ s.st = r.st /\ s.beat = r.beat}
Dated(p, m) ==
    LET s == ShownBefore(p, m.rec) IN
    IF m.phase # "wait" \/ s = {} THEN m
    ELSE LET since == now - (CHOOSE t \in s : TRUE).at IN [m EXCEPT !.age = IF since > Old THEN Old ELSE IF since > @ THEN since ELSE @]

\* What is of the tenure that was seen already, and was shown before, is older,
\* perhaps, and changes nothing then.
Behind(p, r, s) == Before(r, s) \/ (r.tok = s.tok /\ r.st = s.st /\ ShownBefore(p, r) # {})

\* All that contend in a process share what it sees, but for one that cleans up: it
\* goes by what it has seen itself.
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
    /\ o.k # "look" => o.ver = E.ver
    /\ E.rec \in been
    /\ E.out = "applied" /\ o.k # "look" => o.res = E.rec
    /\ E.out = "conflicted" => o.k # "look" /\ o.res # None
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
