------------------------------ MODULE Liveness ------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Once the faults stop, some machine leads and keeps leading. Before that, *)
(* anything in Tenure.tla may happen.                                       *)
EXTENDS Tenure

VARIABLE calm  \* the faults have stopped

Unanswered(p) == \E w \in net : w.by = p /\ Fits(w, store)

\* What a machine does by itself, one write in flight at a time.
Sends(p) ==
    /\ ~Unanswered(p)
    /\ LET v == Fresh(p) IN 
            \/ Claim(p, v) \/ Release(p, v)
            \/ "never takes over" \notin Wrong /\ Takeover(p, v)
            \/ mach[p].age > 0 /\ Heartbeat(p, v)
Learns(p) == Look(p) \/ Collide(p)
\* Work whose lease has expired returns, and clean-ups end.
Ends(p) == Leave(p) \/ ((mach[p].phase = "quiet" \/ Expired(mach[p])) /\ Done(p))

\* Replies and heartbeats keep up with time.
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

\* No VIEW merges states here: the lowest free number keeps them few.
LeastFresh(p) == <<p, CHOOSE n \in 1..99 : n \notin NumbersOf(p) /\ \A k \in 1..(n-1) : k \in NumbersOf(p)>>
=============================================================================
