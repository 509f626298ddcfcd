<<<<<<<< HEAD:eval/ab/report/script.cpp
#include "eval/ab/report/data.hpp"

namespace keel {

const std::string_view ab_report_script = R"js(
========
>>>>>>>> 41bb4cc (eval: keep JavaScript and CSS in files which the build embeds):eval/compare/ab/report.js
const D=JSON.parse(document.getElementById("data").textContent),N=D.names,H=D.header;
function rowsOf(t){return t.rows.map(r=>{const o={};t.columns.forEach((c,i)=>{o[c]=i<t.texts?N[r[i]]:r[i]});return o})}
const cells=rowsOf(D.cells),contrasts=rowsOf(D.contrasts),speeds=rowsOf(D.speeds);
const AGAIN="#again",VERDICTS=["better","worse","not distinguishable","equal in every item","no item in common"],CHIPS=["better","worse","same","same","same"],KINDS=["against the reference","between arms","at equal bytes","reference against itself","two experiments"];
const QUALITY=k=>k<2;
const uniq=list=>Array.from(new Set(list));
const arms=uniq(H.arms.map(a=>a[0]).concat(cells.map(c=>c.arm))).filter(a=>!a.endsWith(AGAIN));
const armText=new Map(H.arms);
const looks=new Map();let used=0;
for(const a of arms)looks.set(a,a===H.reference?{colour:"var(--ink)",dash:"7 4"}:style(used++));
const look=a=>looks.get(a)||{colour:"var(--soft)",dash:""};
const at=(arm,budget)=>budget===""||budget==="full"?arm:arm+" · "+budget;
const question=c=>c.task+" · "+c.metric+(c.protocol?" · "+c.protocol:"");
const asked=c=>question(c)+(c.length>=0?" @ "+c.length:"");
const pieces=budget=>{const i=budget.indexOf(":");return i<0?[budget==="full"?0:9,0]:[["full","tokens","ratio","mib"].indexOf(budget.slice(0,i)),Number(budget.slice(i+1))]};
const byBudget=(a,b)=>{const x=pieces(a),y=pieces(b);return x[0]-y[0]||x[1]-y[1]};
const page=document.getElementById("page");page.replaceChildren();

function section(title,note){
 const s=el("section",{},el("h2",{text:title}));
 if(note)s.append(el("p",{class:"note",text:note}));
 page.append(s);return s}
function choose(bar,name,options,value,changed){
 const s=el("select",{onchange:()=>changed(s.value)},...options.map(o=>el("option",{value:o,text:o===""?"any":o})));
 s.value=value;bar.append(el("label",{},name,s));return s}

// Provenance first: a number without it is a rumour.
const light=()=>matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light";
const wanted=new URLSearchParams(location.search).get("theme")||(location.hash.match(/theme=(dark|light)/)||[])[1];
root.dataset.theme=wanted==="dark"||wanted==="light"?wanted:light();
{
 const button=el("button",{type:"button",onclick:()=>{root.dataset.theme=isDark()?"light":"dark";name();redraws.forEach(f=>f())}});
 const name=()=>{button.textContent=isDark()?"light theme":"dark theme"};name();
 page.append(el("header",{},el("div",{},el("h1",{text:H.title||"keel ab"}),
  el("p",{class:"note",text:arms.length+" arms, "+D.records+" records"+(H.reference?", reference: "+H.reference:"")+(H.shards>1?", shard "+H.shard+" of "+H.shards:"")})),button));
 const counts=el("div",{class:"counts"}),main=contrasts.filter(c=>c.kind===0&&QUALITY(c.sort)&&!c.family.startsWith("secondary")&&!c.family.endsWith("sweeps"));
 if(main.length){
  counts.append(el("span",{class:"soft",text:"Against "+H.reference+(H.statistics.primary?" on "+H.statistics.primary:"")+":"}));
  VERDICTS.forEach((v,i)=>{const n=main.filter(c=>c.verdict===i).length;
   if(n||i<3)counts.append(el("span",{class:"chip "+CHIPS[i],text:["▲ ","▼ ","○ ","= ",""][i]+n+" "+v}))});
  page.append(counts)}
 const S=H.statistics,facts=[["model",H.model],["machine",H.machine],["keel",H.version+(H.commit?" ("+H.commit+")":"")],["date",H.date],["config hash",H.config_hash],
  ["statistics",(100*S.confidence)+"% intervals, "+S.resamples+" resamples, seed "+S.seed+", margin "+S.margin+(S.primary?", primary: "+S.primary:"")]].concat(H.facts).filter(f=>f[1]);
 const box=section("What ran");
 box.append(el("div",{class:"facts"},...facts.map(f=>el("div",{},el("b",{text:f[0]}),f[1]))));
 const described=H.arms.filter(a=>a[1]);
 if(described.length)box.append(el("details",{style:"margin-top:.6em"},el("summary",{text:"the arms"}),
  el("div",{class:"scroll"},el("table",{},el("tbody",{},...described.map(a=>el("tr",{},el("td",{text:a[0]}),el("td",{class:"w",text:a[1]}))))))));
}

if(D.warnings.length||D.notes.length){
 const s=section(D.warnings.length?"Warnings":"Notes");if(D.warnings.length)s.className="warnings";
 const line=w=>{const place=w.slice(0,4).filter(Boolean).join(", ");return el("li",{},place?el("b",{text:place+": "}):null,w[4])};
 const lines=D.warnings.map(line).concat(D.notes.map(n=>el("li",{class:"soft",text:n})));
 s.append(el("ul",{},...lines.slice(0,8)));
 if(lines.length>8)s.append(el("details",{},el("summary",{text:(lines.length-8)+" more"}),el("ul",{},...lines.slice(8))))}

// Verdicts, each with its interval drawn to the scale of its metric.
function forest(c,reach){
 const w=130,h=16,x=v=>w/2+(w/2-4)*Math.max(-1,Math.min(1,v/reach));
 const colour=["var(--good)","var(--bad)","var(--flat)"][Math.min(2,c.verdict)],svg=sv("svg",{width:w,height:h,viewBox:"0 0 "+w+" "+h,role:"img","aria-label":"interval"});
 const m=H.statistics.margin,left=x(-m),right=x(m);
 svg.append(sv("rect",{x:left,y:0,width:Math.max(0,right-left),height:h,style:"fill:var(--grid)"}),
  sv("line",{x1:w/2,x2:w/2,y1:0,y2:h,style:"stroke:var(--soft)","stroke-dasharray":"2 2"}));
 if(c.low!==null)svg.append(sv("line",{x1:x(c.low),x2:x(c.high),y1:h/2,y2:h/2,style:"stroke:"+colour,"stroke-width":3}));
 const arrow=(side,beyond)=>{if(beyond)svg.append(sv("path",{d:side<0?`M0 ${h/2}l6 -5v10z`:`M${w} ${h/2}l-6 -5v10z`,style:"fill:"+colour}))};
 arrow(-1,Math.min(c.effect||0,c.low||0)<-reach*1.001);arrow(1,Math.max(c.effect||0,c.high||0)>reach*1.001);
 if(c.effect!==null)svg.append(sv("circle",{cx:x(c.effect),cy:h/2,r:4,style:"fill:"+colour}));
 return svg}
function verdictChip(c){
 if(!c.n)return el("span",{class:"soft",text:VERDICTS[4]});
 const chip=el("span",{class:"chip "+CHIPS[c.verdict],text:["▲ ","▼ ","○ ","= "][c.verdict]+VERDICTS[c.verdict]});
 return c.verdict===2?el("span",{},chip,el("small",{class:"seen soft",text:"could see "+lessThan(c)})):chip}
const lessThan=(c)=>c.seen===null?"nothing":c.ratio?percent(c.seen).replace("+",""):num(c.seen);
function reaches(list){
 const out=new Map(),key=c=>c.metric+c.ratio,groups=new Map();
 for(const c of list)if(c.n)(groups.get(key(c))||groups.set(key(c),[]).get(key(c))).push(Math.max(Math.abs(c.effect),Math.abs(c.low||0),Math.abs(c.high||0)));
 for(const[k,v]of groups){v.sort((a,b)=>a-b);out.set(k,v[v.length>20?Math.floor((v.length-1)*0.95):v.length-1]||1)}
 return c=>out.get(key(c))||1}
function verdictTable(host,list,bytesColumn,first){
 const reach=reaches(list);
 const columns=[{name:"arm",key:c=>at(c.a,c.aBudget)},{name:"verdict",key:c=>c.verdict,node:verdictChip},{name:"against",key:c=>at(c.b,c.bBudget)}];
 if(bytesColumn)columns.push({name:"KV bytes",key:c=>c.bytes,text:c=>bytes(c.bytes),right:1});
 columns.push({name:"on",key:asked},
  {name:"effect",key:c=>c.effect,text:c=>signed(c.effect,c.ratio),right:1,title:"A - B; for speeds A / B - 1"},
  {name:(100*H.statistics.confidence)+"% interval",text:c=>c.low===null?"-":"["+signed(c.low,c.ratio)+", "+signed(c.high,c.ratio)+"]",title:"of this contrast by itself; the verdict is after Holm's adjustment"},
  {name:"",node:c=>forest(c,reach(c)),title:"the interval around 0; shaded: the margin"},
  {name:"p",key:c=>c.pAdjusted,text:c=>pText(c.pAdjusted),right:1,title:"adjusted by Holm's method"},
  {name:"could see",key:c=>c.seen,text:lessThan,right:1,title:"the least effect that this many items show in 80% of experiments, among so many contrasts"},
  {name:"n",key:c=>c.n,text:c=>c.n+(c.docs!==c.n?" / "+c.docs:""),right:1,title:"items / documents"},
  {name:"in margin",key:c=>c.within,text:c=>c.within?"yes":"",title:"a loss as large as the margin of "+H.statistics.margin+" is excluded"},
  {name:"A",key:c=>c.meanA,text:c=>num(c.meanA),right:1,title:"mean of the items that both have (geometric and trimmed for speeds)"},
  {name:"B",key:c=>c.meanB,text:c=>num(c.meanB)+(c.implied?"*":""),right:1,title:"* by definition"},
  {name:"test",key:c=>c.test,text:c=>c.test+(c.size>1?", "+c.size+" contrasts":"")});
 dataTable(host,list,columns,first)}
{
 const s=section("Verdicts","A against B, item by item. p-values are adjusted by Holm's method over all contrasts of a family; a verdict needs p and the interval to agree, and an effect above the noise floor.");
 const bar=el("div",{class:"bar"}),host=el("div"),all=contrasts.filter(c=>c.kind!==2);
 const f={kind:all.some(c=>c.kind===0)?KINDS[0]:"",task:"",metric:"",verdict:"",protocol:"",text:""};
 const go=()=>{const words=f.text.toLowerCase().split(/\s+/).filter(Boolean);
  host.replaceChildren();
  verdictTable(host,all.filter(c=>(!f.kind||KINDS[c.kind]===f.kind)&&(!f.task||c.task===f.task)&&(!f.metric||c.metric===f.metric)&&(!f.protocol||c.protocol===f.protocol)
   &&(!f.verdict||VERDICTS[c.verdict]===f.verdict)&&words.every(w=>(at(c.a,c.aBudget)+" "+at(c.b,c.bBudget)+" "+asked(c)).toLowerCase().includes(w))),false,60)};
 const filter=(name,key,options)=>{if(uniq(options).length>1)choose(bar,name,[""].concat(uniq(options)),f[key],v=>{f[key]=v;go()})};
 filter("contrasts","kind",all.map(c=>c.kind).sort().map(k=>KINDS[k]));
 filter("task","task",all.map(c=>c.task));filter("metric","metric",all.map(c=>c.metric));
 filter("protocol","protocol",all.map(c=>c.protocol).filter(Boolean));filter("verdict","verdict",all.map(c=>VERDICTS[c.verdict]));
 const find=el("input",{type:"search",placeholder:"words",oninput:()=>{f.text=find.value;go()}});
 bar.append(el("label",{},"find",find));
 s.append(bar,host);go()}

const byArm=(x,y)=>arms.indexOf(x.arm)-arms.indexOf(y.arm)||byBudget(x.budget,y.budget);
const places=c=>({arm:N[c[0]],budget:N[c[1]],protocol:N[c[2]],task:N[c[3]],metric:c.length>4?N[c[4]]:""});
const primaryFirst=list=>{const p=H.statistics.primary;return p?list.slice().sort((a,b)=>(b.startsWith(p)?1:0)-(a.startsWith(p)?1:0)):list};

{
 const usable=cells.filter(c=>QUALITY(c.kind)&&c.bytes>0&&!c.arm.endsWith(AGAIN)),questions=primaryFirst(uniq(usable.map(question)));
 if(questions.length){
  const s=section("Quality against kept bytes","Mean over the items with its interval. A ring marks the Pareto front: no other arm is as good with fewer bytes.");
  const bar=el("div",{class:"bar"}),host=el("div",{class:"plot"}),hidden=new Set();let q=questions[0];
  s.append(bar,host);
  const again=drawn(host,(h,w)=>{
   const here=usable.filter(c=>question(c)===q);
   const series=arms.filter(a=>here.some(c=>c.arm===a)).map(a=>Object.assign({name:a},look(a),{points:here.filter(c=>c.arm===a).sort((x,y)=>x.bytes-y.bytes).map(c=>({x:c.bytes,y:c.mean,low:c.low,high:c.high,ring:c.front,
     title:at(a,c.budget)+": "+num(c.mean)+(c.low===null?"":" ["+num(c.low)+", "+num(c.high)+"]")+", "+bytes(c.bytes)+", "+num(c.kept)+" slots a head"}))}));
   lineChart(h,w,{series:series,hidden:hidden,xBytes:1,logX:1,xName:"KV bytes held",yName:here[0].metric});
   legend(h,series,hidden,again)});
  choose(bar,"of",questions,q,v=>{q=v;again()});
  again()}
}

{
 const equal=contrasts.filter(c=>c.kind===2);
 if(equal.length||D.apart.length){
  const s=section("At equal bytes","Where two arms' caches are equally large; between an arm's budgets its items are taken linearly in bytes.");
  if(equal.length)verdictTable(s,equal,true,25);
  if(D.apart.length){
   const lines=D.apart.map(a=>{const r=(x,y)=>x===y?bytes(x):bytes(x)+" to "+bytes(y);
    return el("li",{text:N[a[0]]+" ("+r(a[4],a[5])+") and "+N[a[1]]+" ("+r(a[6],a[7])+"), "+N[a[3]]+(N[a[2]]?" "+N[a[2]]:"")})});
   s.append(el("details",{},el("summary",{text:D.apart.length+" pairs whose caches are never equally large: nothing is said about them"}),el("ul",{},...lines)))}}
}

if(D.heat.length){
 const all=[];for(const h of D.heat)for(const c of h.cells)all.push(Object.assign(places(c[0]),{values:c[1],items:c[2],up:c[3],lengths:h.lengths,depths:h.depths}));
 const kept=all.filter(c=>!c.arm.endsWith(AGAIN)),questions=primaryFirst(uniq(kept.map(question)));
 if(questions.length){
 const s=section("Depth and length","Rows: where in the prompt the asked-for text stands. Columns: tokens of the prompt.");
 const bar=el("div",{class:"bar"}),host=el("div");s.append(bar,host);
 let q=questions[0],a="",b="";
 const of=()=>kept.filter(c=>question(c)===q);
 const again=drawn(host,(h,w)=>{
  const first=of().find(c=>at(c.arm,c.budget)===a),second=of().find(c=>at(c.arm,c.budget)===b);
  const panels=el("div",{class:"panels"});h.append(panels);
  const room=w>=960?(w-28)/3:w>=640?(w-14)/2:w;
  const known=[first,second].filter(Boolean).flatMap(c=>c.values.filter(v=>v!==null));
  const low=Math.min(0,...known),high=Math.max(first&&first.up?1:0,...known);
  const panel=(title,options)=>{const p=el("div",{},el("h3",{text:title}));panels.append(p);heatMap(p,room,Object.assign({name:title},options))};
  for(const[name,c]of[["A: "+a,first],["B: "+b,second]])if(c)panel(name,{lengths:c.lengths,depths:c.depths,values:c.values,items:c.items,low:low,high:high});
  if(first&&second){const d=first.values.map((v,i)=>v===null||second.values[i]===null?null:v-second.values[i]);
   panel("A − B",{lengths:first.lengths,depths:first.depths,values:d,centred:1,reach:Math.max(1e-9,...d.filter(v=>v!==null).map(Math.abs))})}});
 const fill=()=>{
  const names=of().map(c=>at(c.arm,c.budget));
  const other=names.find(n=>!n.startsWith(H.reference))||names[0];
  if(!names.includes(a))a=other;if(!names.includes(b))b=names.includes(H.reference)?H.reference:names[0];
  bar.replaceChildren();
  choose(bar,"of",questions,q,v=>{q=v;fill();again()});
  choose(bar,"A",names,a,v=>{a=v;again()});choose(bar,"B",names,b,v=>{b=v;again()})};
 fill();again()}}

// Lines of all arms at one budget, beside those that have none.
function budgetChart(s,all,questionOf,options){
 const bar=el("div",{class:"bar"}),host=el("div",{class:"plot"}),hidden=new Set();s.append(bar,host);
 const questions=primaryFirst(uniq(all.map(questionOf)));let q=questions[0],budget="";
 const budgets=()=>{const b=uniq(all.filter(c=>questionOf(c)===q).map(c=>c.budget)).sort(byBudget);return b.length>1?b.filter(x=>x!=="full"):b};
 const again=drawn(host,(h,w)=>{
  const here=all.filter(c=>questionOf(c)===q&&(c.budget===budget||c.budget==="full")).sort(byArm);
  const series=here.map(c=>Object.assign({name:at(c.arm,c.budget)},look(c.arm),{points:c.points,dots:c.dots}));
  lineChart(h,w,Object.assign({series:series,hidden:hidden},options(q)));legend(h,series,hidden,again)});
 const fill=()=>{const b=budgets();if(!b.includes(budget))budget=b[0];bar.replaceChildren();
  choose(bar,"of",questions,q,v=>{q=v;fill();again()});if(b.length>1)choose(bar,"budget",b,budget,v=>{budget=v;again()})};
 fill();again()}

if(D.timelines.length){
 const all=D.timelines.map(t=>{const p=places(t[0]);
  return Object.assign(p,{dots:false,points:t[2].map(v=>({x:v[0],y:v[1],mark:v[2]>0,title:at(p.arm,p.budget)+": "+v[2]+" slots evicted at token "+v[0]}))})}).filter(c=>!c.arm.endsWith(AGAIN));
 if(all.length)budgetChart(section("KV bytes over time","One item of each. A triangle: an eviction."),all,c=>c.task+(c.protocol?" · "+c.protocol:""),()=>({xName:"tokens",yName:"KV bytes",yBytes:1,zero:1,tight:1}))}

if(D.curves.length){
 const z=1.96,all=D.curves.map(c=>{const p=places(c[0]);
  return Object.assign(p,{dots:false,points:c[2].map(v=>({x:v[0],y:v[1],low:v[1]-z*v[2],high:v[1]+z*v[2],title:""}))})}).filter(c=>!c.arm.endsWith(AGAIN));
 if(all.length)budgetChart(section("By tokens since the eviction","Mean over the items, with ±1.96 standard errors."),all,question,q=>({xName:"tokens since the eviction",yName:q.split(" · ")[1],tight:1}))}

if(D.maps.length){
 const shades="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_",value=new Map(Array.from(shades).map((c,i)=>[c,i/63]));
 const all=D.maps.map(m=>Object.assign(places(m[0]),{layers:m[1],heads:m[2],items:m[3],bins:m[4]})).filter(m=>!m.arm.endsWith(AGAIN)).sort(byArm);
 if(all.length){
 const name=m=>at(m.arm,m.budget)+" · "+m.task+(m.protocol?" · "+m.protocol:""),names=primaryFirst(all.map(name));
 const s=section("What was kept","Each row is a head of a layer, each column a 64th of the prompt; the darker (in the dark theme: the brighter), the more of it was kept.");
 const bar=el("div",{class:"bar"}),host=el("div");s.append(bar,host);
 // The first one shown evicts something.
 let now=(all.find(m=>Array.from(m.bins).some(c=>c!=="_"))||all[0]);
 const again=drawn(host,(h,w)=>{
  const rows=now.layers*now.heads,left=58,tall=Math.max(3,Math.min(16,Math.floor(420/rows)));
  const canvas=el("canvas",{width:64,height:rows,style:"height:"+tall*rows+"px","aria-label":"share of positions kept"}),g=canvas.getContext("2d"),image=g.createImageData(64,rows);
  for(let i=0;i<now.bins.length;i++){const c=sequential(value.get(now.bins[i]));image.data.set([c[0],c[1],c[2],255],4*i)}
  g.putImageData(image,0,0);
  const says=el("p",{class:"note",text:(now.items===1?"one item":"mean of "+now.items+" items")+"; point at the map for numbers"});
  canvas.addEventListener("pointermove",e=>{const r=canvas.getBoundingClientRect(),x=Math.max(0,Math.min(63,Math.floor((e.clientX-r.left)/r.width*64))),y=Math.max(0,Math.min(rows-1,Math.floor((e.clientY-r.top)/r.height*rows)));
   says.textContent="layer "+Math.floor(y/now.heads)+", head "+y%now.heads+", "+(100*x/64).toFixed(0)+"% to "+(100*(x+1)/64).toFixed(0)+"% of the prompt: "+(100*value.get(now.bins[y*64+x])).toFixed(0)+"% kept"});
  const every=Math.ceil(14/(tall*now.heads)),labels=sv("svg",{width:left,height:tall*rows});
  for(let l=0;l<now.layers;l+=every)labels.append(sv("text",{x:left-6,y:tall*now.heads*(l+0.5)+4,"text-anchor":"end",text:"layer "+l}),
   l>0?sv("line",{x1:left-4,x2:left,y1:tall*now.heads*l,y2:tall*now.heads*l,class:"axis"}):"");
  h.append(el("div",{style:"display:flex"},el("div",{style:"flex:none"},labels),el("div",{style:"flex:1;min-width:0"},canvas)),
   el("div",{style:"display:flex;justify-content:space-between;margin-left:"+left+"px",class:"note"},el("span",{text:"beginning"}),el("span",{text:"end of the prompt"})),says)});
 choose(bar,"of",names,name(now),v=>{now=all.find(m=>name(m)===v);again()});
 again()}}

{
 const list=cells.filter(c=>QUALITY(c.kind));
 if(list.length){
 const s=section("All results"),bar=el("div",{class:"bar"}),host=el("div");s.append(bar,host);
 const questions=primaryFirst(uniq(list.map(question)));let q=questions[0];
 const go=()=>{host.replaceChildren();dataTable(host,list.filter(c=>!q||question(c)===q),[{name:"arm",key:c=>c.arm},{name:"budget",key:c=>c.budget},{name:"of",key:question},
  {name:"mean",key:c=>c.mean,text:c=>num(c.mean),right:1},{name:"interval",text:c=>c.low===null?"-":"["+num(c.low)+", "+num(c.high)+"]"},
  {name:"n",key:c=>c.n,text:c=>c.n+(c.docs!==c.n?" / "+c.docs:""),right:1,title:"items / documents"},
  {name:"slots a head",key:c=>c.kept,text:c=>num(c.kept),right:1},{name:"of tokens",key:c=>c.seen,text:c=>num(c.seen),right:1},
  {name:"KV bytes",key:c=>c.bytes,text:c=>bytes(c.bytes),right:1},{name:"saved",key:c=>c.full>0?1-c.bytes/c.full:null,text:c=>c.full>0?(100*(1-c.bytes/c.full)).toFixed(1)+"%":"-",right:1},
  {name:"peak",key:c=>c.peak,text:c=>bytes(c.peak),right:1,title:"the most that was held, prefill included"},
  {name:"evictions",key:c=>c.evicts,text:c=>num(c.evicts),right:1,title:"a mean over the items"},{name:"µs each",key:c=>c.evicts>0?c.us/c.evicts:null,text:c=>c.evicts>0?num(c.us/c.evicts):"-",right:1}],60)};
 choose(bar,"of",[""].concat(questions),q,v=>{q=v;go()});go()}
}

if(speeds.length){
 const s=section("Speed","Medians over the repeats, which arms took in turns."),bar=el("div",{class:"bar"}),host=el("div");s.append(bar,host);
 const metrics=uniq(speeds.map(r=>r.metric));let m=metrics.find(x=>x.includes("decode"))||metrics[0];
 const go=()=>{host.replaceChildren();dataTable(host,speeds.filter(r=>!m||r.metric===m),[{name:"arm",key:r=>at(r.arm,r.budget)},{name:"of",key:question},{name:"tokens before",key:r=>r.length,right:1},
  {name:"median",key:r=>r.median,text:r=>num(r.median),right:1},{name:"middle half",text:r=>num(r.p25)+" to "+num(r.p75)},{name:"99% quantile",key:r=>r.p99,text:r=>num(r.p99),right:1},{name:"n",key:r=>r.n,right:1}],60)};
 choose(bar,"metric",[""].concat(metrics),m,v=>{m=v;go()});go()}

{
 const s=section("How to read this");
 for(const t of ["Items are paired: both arms answered the same question of the same document. Items of one document share its luck, so intervals and tests take documents, not items, as independent.",
  "Hits (0 or 1), one item a document: McNemar's exact test and Newcombe's interval. Anything else: a sign-flip test over documents and the BCa bootstrap; Student's t for fewer than 10 or more than 1000 documents.",
  "“Not distinguishable” is not “equal”: “could see” is the least effect that so many items would have shown in 80% of such experiments, among as many contrasts as there are in the family. “Equal in every item” says what was counted, and proves no more than its interval does. “Within margin” means that the interval excludes a loss as large as the margin ("+H.statistics.margin+").",
  "KV bytes are what was held while an item was scored, as a mean over the items, with what the policy makes the core hold beside the cache; peak is the most that was held at any time, the prompt before the eviction and a replay included."])
  s.append(el("p",{class:"note",text:t}))}
