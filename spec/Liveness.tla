------------------------------ MODULE Liveness ------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* When the faults stop, somebody leads, and goes on leading. Until then    *)
(* anything may happen that Tenure.tla allows.                              *)
EXTENDS Tenure

VARIABLE calm  \* the faults have stopped

Unanswered(p) == \E w \in net : w.by = p /\ Fits(w, store)

\* What a machine does by itself. It has one request under way at most.
Sends(p) ==
    /\ ~Unanswered(p)
    /\ LET v == Fresh(p) IN 
            \/ Claim(p, v) \/ Release(p, v)
            \/ "never takes over" \notin Wrong /\ Takeover(p, v)
            \/ mach[p].age > 0 /\ Heartbeat(p, v)
Learns(p) == Look(p) \/ Collide(p)
\* Work that has lost its lease comes to its end; so does the clean-up of an
\* acquire that was given up.
Ends(p) == Leave(p) \/ ((mach[p].phase = "quiet" \/ Expired(mach[p])) /\ Done(p))

\* Requests are answered, answers read, and heartbeats sent, before much time has
\* passed.
Quick ==
    /\ \A w \in net : ~Fits(w, store)
    /\ \A p \in Machines :
        LET m == mach[p] IN
        /\ IF m.phase \in {"wait", "leave"} THEN Wrote(m.unknown, store) # {} => m.rec = store
           ELSE m.rec.ver = store.ver
        /\ Believes(p) => m.age + Tick < Shortest(Window)

Passes == Pass(Tick) /\ Quick /\ mach' # mach
Calm ==
    \/ Passes
    \/ \E w \in net : Apply(w)
    \/ \E p \in Machines : Sends(p) \/ Learns(p) \/ Ends(p)

LiveInit == Init /\ calm = FALSE
LiveNext ==
    \/ ~calm /\ Next /\ store'.tok < MaxToken /\ UNCHANGED calm
    \/ ~calm /\ calm' = TRUE /\ net' = {} /\ UNCHANGED <<store, mach, log>>
    \/ calm /\ Calm /\ UNCHANGED calm

LiveSpec ==
    /\ LiveInit /\ [][LiveNext]_<<vars, calm>>
    /\ WF_<<vars, calm>>(calm /\ Passes /\ UNCHANGED calm)
    /\ WF_<<vars, calm>>(calm /\ (\E w \in net : Apply(w)) /\ UNCHANGED calm)
    /\ \A p \in Machines :
        /\ WF_<<vars, calm>>(calm /\ Sends(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Learns(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Ends(p) /\ UNCHANGED calm)

Somebody == \E p \in Machines : Believes(p)
Leads == <>calm => <>[]Somebody

\* Here every state counts, so that the lowest free number serves.
LeastFresh(p) == <<p, CHOOSE n \in 1..99 : n \notin NumbersOf(p) /\ \A k \in 1..(n-1) : k \in NumbersOf(p)>>
=============================================================================
